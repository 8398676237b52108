"""The file of a question: what it means, what it draws, and everything that is wrong with it at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from allocator.domain import SnapshotError
from allocator.generate.organisation_trace import TraceParams, generate_trace
from allocator.planning import read_question
from allocator.planning.document import GrowthDoc, UnitDoc
from allocator.planning.scenarios import grow, measure_demand
from allocator.planning.tables import _read_rows
from allocator.wire import encode_trace

PLAN = """
first = "2027Q1"
quarters = 3
units = "units.csv"

[[prices]]
unit = "rack"
price = 100
[[prices]]
unit = "rack"
price = 80
since = "2027Q2"

[[existing]]
name = "old"
pool = "h100"
gpus = 16
nodes = 2
until = "2027Q2"
uses = { power_kw = 20 }

[[limits]]
resource = "power_kw"
limit = 50
[[limits]]
resource = "power_kw"
limit = 90
since = "2027Q3"

[[pledged]]
pool = "h100"
gpus = 64

[[shares]]
project = "robots"
share = 3
[[shares]]
project = "speech"
share = 1
"""

UNITS = "name,pool,gpus,nodes,lead,most,uses.power_kw\nrack,h100,32,4,1,,42\nnew,b300,8,1,0,2,\n"

DEMAND = """
[[demand]]
project = "robots"
pool = "h100"
gpus = 40
[[demand]]
project = "speech"
pool = "h100"
gpus = 30
since = "2027Q2"
"""


def write(folder: Path, text: str, units: str = UNITS) -> Path:
    (folder / "units.csv").write_text(units)
    path = folder / "plan.toml"
    path.write_text(text + '\n[[prices]]\nunit = "new"\nprice = 9\n')
    return path


def test_everything_is_spread_over_quarters(tmp_path: Path) -> None:
    asked = read_question(write(tmp_path, PLAN + DEMAND))
    assert asked.quarters == ("2027Q1", "2027Q2", "2027Q3")
    assert (asked.pools, asked.projects) == (("h100", "b300"), ("robots", "speech"))
    rack, new = asked.units
    assert (rack.prices, rack.lead, rack.most, rack.uses) == ((100, 80, 80), 1, None, {"power_kw": 42})
    assert (new.most, new.uses) == (2, {})
    assert [(row.quarters, row.early) for row in asked.existing] == [(2, False)]
    assert asked.limits == {"power_kw": (50, 50, 90)}
    assert asked.shares.tolist() == [[0.75, 0.75], [0.25, 0.25]]
    assert asked.demand[0, 0, :, :, 0].tolist() == [[40, 0], [40, 30], [40, 30]]
    # A quarter of the 64 GPUs that were pledged is all that speech is owed.
    assert asked.owed[0, 0, :, :, 0].tolist() == [[40, 0], [40, 16], [40, 16]]


def test_scenarios_of_the_file_and_courses(tmp_path: Path) -> None:
    text = PLAN + DEMAND + '[[demand]]\nscenario = "boom"\nproject = "robots"\npool = "h100"\ngpus = 80\n'
    text += '[[demand]]\nscenario = "bust"\nproject = "speech"\npool = "h100"\ngpus = 4\n'
    text += '[[courses]]\ncourse = "stay"\n'
    text += '[[courses]]\ncourse = "move"\npool = "h100"\nto = "b300"\npart = 0.5\nspeed = 2\nsince = "2027Q3"\n'
    asked = read_question(write(tmp_path, text))
    assert (asked.scenarios, asked.courses) == (("boom", "bust"), ("stay", "move"))
    assert asked.demand[0, :, 2, :, 0].tolist() == [[80, 30], [40, 4]]
    assert asked.demand[1, :, 1, :, 0].tolist() == [[80, 30], [40, 4]]
    assert asked.demand[1, :, 2].tolist() == [[[40, 20], [15, 7.5]], [[20, 10], [2, 1]]]


def test_growth_is_drawn_from_a_seed_and_right_on_average() -> None:
    base = np.full((1, 5, 2, 1), 100.0)
    growth = GrowthDoc(yearly=0.5, uncertainty=0.2, own=0.1, scenarios=4000, seed=3, projects={"b": 0.0})
    drawn = grow(base, growth, ["a", "b"], ["h100"])
    assert np.array_equal(drawn, grow(base, growth, ["a", "b"], ["h100"]))
    assert drawn[:, 0].tolist() == [[[100.0], [100.0]]] * 4000
    assert drawn[:, 4, :, 0].mean(axis=0) == pytest.approx([150, 100], rel=0.02)
    assert np.log(drawn[:, 4, 0, 0]).std() == pytest.approx(np.hypot(0.2, 0.1), rel=0.05)
    together = np.corrcoef(np.log(drawn[:, 4, :, 0]).T)[0, 1]
    assert together == pytest.approx(0.2**2 / (0.2**2 + 0.1**2), abs=0.05)


def test_demand_and_shares_of_a_trace(tmp_path: Path) -> None:
    trace = generate_trace(TraceParams(gpus=64, pools=1, days=1, load=0.9, seed=1, failures=0.0))
    (tmp_path / "trace.json").write_bytes(encode_trace(trace))
    text = PLAN.partition("[[shares]]")[0].replace("quarters = 3", 'quarters = 3\ntrace = "trace.json"')
    asked = read_question(write(tmp_path, text))
    measured = measure_demand(trace)
    assert asked.demand.sum() == pytest.approx(3 * sum(measured.values()))
    assert 0 < sum(measured.values()) < 64 * 0.9
    assert asked.shares.sum(axis=0) == pytest.approx([1, 0])
    assert asked.shares[asked.projects.index("base/pretrain"), 0] == pytest.approx(0.45 * 0.65, abs=0.01)
    unknown = issues_of(write(tmp_path, text + "[require.projects]\npretrain = 0.9\n"))
    assert unknown[0].startswith('FILE: $.require.projects: unknown project "pretrain"; ')
    elsewhere = issues_of(write(tmp_path, text.replace('pool = "h100"', 'pool = "b300"'), UNITS.replace("h100", "b300")))
    assert elsewhere == ['FILE: $.trace: its work names pool "h100", of which there are no units; valid are "b300"']


def issues_of(path: Path) -> list[str]:
    with pytest.raises(SnapshotError) as refused:
        read_question(path)
    return [str(issue).replace(str(path), "FILE") for issue in refused.value.issues]


def test_every_unreadable_field_is_named_with_its_place(tmp_path: Path) -> None:
    units = UNITS.replace("32,4,1", "32,four,1").replace("new,b300,8", "new,b300,-8")
    found = issues_of(write(tmp_path, PLAN.replace("quarters = 3", 'quarters = "three"\ncolour = 1'), units))
    assert found == [
        'FILE: $.colour: unknown field "colour"; ' + found[0].partition("; ")[2],
        'FILE: $.quarters: "three" is not valid here; give an integer from 1 to 80',
        'units.csv, row 1: $.nodes: "four" is not valid here; give an integer from 1 to 1,000,000,000',
        "units.csv, row 2: $.gpus: -8 is not valid here; give an integer from 1 to 1,000,000,000",
    ]


CONTRADICTIONS = {
    '$.first: "2027-1" is no quarter; write it as 2027Q1': ('"2027Q1"\nq', '"2027-1"\nq'),
    "$.existing[0].nodes: 16 GPUs on 3 nodes; give nodes that all have as many GPUs": ("nodes = 2", "nodes = 3"),
    '$.units[0].nodes: 8 GPUs a node in pool "h100", whose others have 4; give each GPU type and kind of node its own pool': (
        "nodes = 2", "nodes = 4",
    ),
    '$.prices[1].unit: unknown unit "rakk"; did you mean "rack"?': ('"rack"\nprice = 80', '"rakk"\nprice = 80'),
    '$.limits[0].resource: unknown resource "power"; did you mean "power_kw"?': (
        '"power_kw"\nlimit = 50', '"power"\nlimit = 50',
    ),
    "$.limits: power_kw is 5 in 2027Q1; what may not leave by then takes 20; "
    "raise the limit, or let existing units leave early": (
        "limit = 50", "limit = 5",
    ),
    '$.demand[0].project: "robots" has no share of "h100", so nothing of this is owed; give it a share, or leave the row out': (
        "share = 3", "share = 0",
    ),
    "$.demand: no demand is given; give either rows of demand or a trace": (DEMAND, ""),
    '$.existing[0].name: "rack" is there twice; give every one a name of its own': ("", ""),
    "$.growth: the scenarios are given and drawn; leave growth out, or the scenarios of the rows": (
        "gpus = 40", 'gpus = 40\nscenario = "boom"\n[growth]\n',
    ),
    '$.require.projects: unknown project "robot"; did you mean "robots"?': (
        "[[pledged]]", "[require.projects]\nrobot = 0.9\n[[pledged]]",
    ),
    "$.require.delivered: 0.99 of what is owed, but at the lowest load that was measured only 0.9 is delivered; "
    "require 0.9 at most, or measure at a lower load": (
        "[[pledged]]", "[require]\ndelivered = 0.99\n[utilisation]\nloads = [0.8]\ndelivered = [0.9]\n[[pledged]]",
    ),
    "$.utilisation.loads[1]: 0.7 after 0.8; let loads rise and shares fall": (
        "[[pledged]]", "[utilisation]\nloads = [0.8, 0.7]\ndelivered = [1, 0.9]\n[[pledged]]",
    ),
    "$.utilisation.delivered: 2 loads and 1 shares; give one share for each load": (
        "[[pledged]]", "[utilisation]\nloads = [0.8, 0.9]\ndelivered = [1]\n[[pledged]]",
    ),
    '$.replay.quarters[0]: "2030Q1" is no quarter of the plan; give one from 2027Q1 to 2027Q3': (
        "[[pledged]]", '[replay]\nquarters = ["2030Q1"]\n[[pledged]]',
    ),
    '$.courses[0]: moves from "h100" to null; name two pools, or none for a course without moves': (
        "[[pledged]]", '[[courses]]\ncourse = "go"\npool = "h100"\n[[pledged]]',
    ),
    '$.courses[1].part: 1.2 of "h100" moves on; let all parts add up to 1 at most': (
        "[[pledged]]",
        '[[courses]]\ncourse = "go"\npool = "h100"\nto = "b300"\npart = 0.5\n'
        '[[courses]]\ncourse = "go"\npool = "h100"\nto = "b200"\npart = 0.7\n[[pledged]]',
    ),
    '$.prices[1]: "rack" is there twice; leave one of the rows out': ('price = 80\nsince = "2027Q2"', "price = 80"),
    '$.replay.policy: unknown policy "fifo"; ': ("[[pledged]]", '[replay]\npolicy = "fifo"\n[[pledged]]'),
}  # fmt: skip


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_contradictions_are_named_with_value_and_remedy(message: str, tmp_path: Path) -> None:
    before, after = CONTRADICTIONS[message]
    text = (PLAN + DEMAND).replace(before, after) if before else PLAN + DEMAND
    if "there twice" in message:
        text, message = text.replace('name = "old"', 'name = "rack"'), message.replace("existing[0]", "units[0]")
    found = [issue.replace("units.csv, row 1: $", "FILE: $.units[0]") for issue in issues_of(write(tmp_path, text))]
    assert any(issue.startswith(f"FILE: {message}") for issue in found), found


def test_all_contradictions_come_at_once(tmp_path: Path) -> None:
    text = (
        (PLAN + DEMAND).replace("share = 3", "share = 0").replace("nodes = 2", "nodes = 3").replace("limit = 50", "limit = 5")
    )
    assert len(issues_of(write(tmp_path, text))) == 3


def test_what_is_no_toml_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("first = ")
    assert "is no TOML" in issues_of(path)[0]
    path.write_text('units = "nowhere.csv"')
    assert "nowhere.csv: cannot be read" in issues_of(path)[0]


def test_a_unit_is_not_on_sale_before_its_first_price(tmp_path: Path) -> None:
    text = (PLAN + DEMAND).replace("price = 100\n", 'price = 100\nsince = "2027Q3"\n')
    assert read_question(write(tmp_path, text)).units[0].prices == (np.inf, 80, 100)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("name,pool,gpus\nrack,h100", "units.csv, row 1", "2 cells, 3 columns"),
        ("name,pool,gpus\nrack,h100,32\nbox,h100,8,1", "units.csv, row 2", "4 cells, 3 columns"),
        ("name,pool,pool\nrack,h100,h100", "units.csv", "the column 'pool' is there twice"),
    ],
)
def test_a_table_with_holes_is_refused(tmp_path: Path, text: str, place: str, problem: str) -> None:
    """A missing cell would quietly take its default."""
    (tmp_path / "units.csv").write_text(text, encoding="utf-8")
    with pytest.raises(SnapshotError) as caught:
        _read_rows(tmp_path / "units.csv", UnitDoc)
    assert [(issue.path, issue.problem) for issue in caught.value.issues] == [(place, problem)]


def test_figures_that_nobody_means_are_refused(tmp_path: Path) -> None:
    growth = "[growth]\nuncertainty = 1000\nown = 2.5\nscenarios = 2_000_000\n"
    text = PLAN.replace("price = 100", "price = 1e300") + DEMAND.replace("gpus = 40", "gpus = 1e13") + growth
    found = issues_of(write(tmp_path, text))
    places = [
        "$.prices[0].price: 1e+300", "$.demand[0].gpus: 10000000000000.0", "$.growth.uncertainty: 1000", "$.growth.own: 2.5",
        "$.growth.scenarios: 2000000",
    ]  # fmt: skip
    assert len(found) == len(places)
    for place in places:
        assert any(f"FILE: {place} is not valid here; give a" in each for each in found), (place, found)


def test_growth_beyond_all_clusters_is_refused(tmp_path: Path) -> None:
    text = PLAN.replace("quarters = 3", "quarters = 60") + DEMAND + "[growth]\nyearly = 20\nscenarios = 3\n"
    (found,) = issues_of(write(tmp_path, text))
    assert found.startswith('FILE: $.growth: "robots" asks for ')
    assert 'GPUs of "h100" in 2041Q4, scenario "draw 1"; give less demand, less growth or fewer quarters' in found
    (found,) = issues_of(write(tmp_path, PLAN + DEMAND.replace("gpus = 40", "gpus = 2e9")))
    assert found.startswith('FILE: $.demand: "robots" asks for 2e+09 GPUs of "h100" in 2027Q1, scenario "expected"')


def test_a_trace_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "month.json").write_text("{")
    (found,) = issues_of(write(tmp_path, 'trace = "month.json"\n' + PLAN))
    assert found.startswith(f"{tmp_path / 'month.json'}: $")
