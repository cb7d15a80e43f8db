"""The interview room: a scenario is asked step by step, as an interviewer would, and what is claimed is settled by a live run.

    data/scenarios/*.toml   the scenarios, as data; how to write one stands in the README.md beside them
    units.py        what people type ("35k/s", "45 billion a day", "6 TB") as a number with its dimension
    quantities.py   the figures given as right: expressions over `feedlab.core.cost`, never literals
    scenario.py     the schema; a mistake says file, key, and what was expected
    engine.py       the state machine that notebook and terminal share: pure, and small enough to be saved at each answer
    store.py        sessions, scorecards and streaks under `.feedlab/interview/`
    experiments.py  what runs on the live engines, by name; each ends in a figure, a sentence and numbers
    drills.py       estimation drills with fresh numbers
    scorecard.py    the rubric, the level, the evidence; HTML and JSON
    stepper.py      the widget; the terminal's is feedlab/cli/interview.py
"""
