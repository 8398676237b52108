// Lets readers choose the hour of a map. Without it the page shows the busiest hour.
for (const floor of document.querySelectorAll(".floor")) {
  const data = JSON.parse(floor.querySelector("script").textContent);
  const slider = floor.querySelector("input");
  const shown = floor.querySelector("output");
  const cells = [...floor.querySelectorAll(".cell")];
  const words = [...floor.querySelectorAll("tbody tr > :last-child")];
  const isHeld = (letter) => data.letters.includes(letter) || letter === "+";

  const countsOf = (state) => {
    const counts = new Map();
    for (const letter of state) counts.set(letter, (counts.get(letter) ?? 0) + 1);
    return counts;
  };
  const markOf = (counts, first) => {
    const held = [...counts].filter(([letter]) => isHeld(letter));
    held.sort(([a, most], [b, more]) => more - most || (a === "+") - (b === "+") || (a < b ? -1 : 1));
    if (!held.length) return data.marks[first];
    return held[0][0] + (held.length > 1 && held[0][0] !== "+" ? "+" : "");
  };
  const barOf = (counts) => {
    let begin = 0;
    const stops = [...counts].map(([letter, count]) => {
      const stop = `var(--${data.roles[letter]}) ${(begin * 100) / data.pieces}% ${((begin + count) * 100) / data.pieces}%`;
      begin += count;
      return stop;
    });
    return `linear-gradient(90deg,${stops})`;
  };
  const wordsOf = (counts) =>
    [...counts]
      .map(([letter, count]) => `${data.letters.includes(letter) ? `${letter} ` : ""}${data.names[letter]} ${count}/${data.pieces}`)
      .join(", ");

  const show = () => {
    const state = data.states[slider.value];
    cells.forEach((cell, place) => {
      const own = state.slice(place * data.pieces, (place + 1) * data.pieces);
      const counts = countsOf(own);
      cell.querySelector("b").textContent = markOf(counts, own[0]);
      cell.querySelector("i").style.background = barOf(counts);
      if (words[place]) words[place].textContent = wordsOf(counts);
    });
    shown.textContent = data.hours[slider.value];
    slider.setAttribute("aria-valuetext", data.hours[slider.value]);
  };
  slider.hidden = false;
  slider.addEventListener("input", show);
  show();
}
