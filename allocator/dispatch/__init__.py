"""The allocator in charge of a real scheduler, epoch after epoch.

Data flows one way: what the scheduler shows (`facts`) and what the journal remembers become a snapshot (`observe`, `build`),
the snapshot a decision, the decision orders (`plan`), and orders effects (`execute`, the only part that changes anything). What
took effect is read off the scheduler again (`settle`) and remembered. `launcher` says what a scheduler must be able to do;
`dispatch.slurm` does it for Slurm.
"""
