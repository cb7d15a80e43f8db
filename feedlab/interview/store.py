"""What is kept between runs, under `<state folder>/interview/`: sessions, scorecards, the streak of the drills. Each write
is whole: a kernel that dies in the middle leaves the file as it was.

    sessions/<id>.json     each interview, written after each answer
    scorecards/<id>.json   and .html, one a finished interview
    drills.json            the streak
"""

import json
from pathlib import Path

from .. import atomic
from ..config import Settings
from ..errors import BadInput
from .engine import Session


class Store:
    """`Store.of(settings)`; or any folder, for a trial that leaves no trace."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    @classmethod
    def of(cls, settings: Settings) -> "Store":
        return cls(settings.state_dir / "interview")

    # --- sessions -----------------------------------------------------------------------------------------------------------

    def save(self, session: Session) -> Path:
        return self.write(f"sessions/{session.id}.json", json.dumps(session.as_dict(), ensure_ascii=False, indent=1))

    def sessions(self) -> list[Session]:
        """All that can be read, the newest last. One that is damaged is passed over, and left where it is."""
        found = []
        for path in self.folder.glob("sessions/*.json"):
            try:
                found.append(Session.of(json.loads(path.read_text(encoding="utf-8"))))
            except (OSError, ValueError, BadInput):
                continue
        return sorted(found, key=lambda s: s.began)

    def unfinished(self, scenario: str, level: str | None = None) -> Session | None:
        """The newest session of a scenario (and level) that has not ended."""
        left = [s for s in self.sessions() if s.scenario == scenario and s.ended is None and level in (None, s.level)]
        return left[-1] if left else None

    # --- scorecards ---------------------------------------------------------------------------------------------------------

    def cards(self) -> list[dict]:
        """The history: every scorecard, the oldest first."""
        found = []
        for path in self.folder.glob("scorecards/*.json"):
            try:
                card = json.loads(path.read_text(encoding="utf-8"))
                found.append(card if {"ended", "scenario", "level", "share"} <= card.keys() else None)
            except (OSError, ValueError, AttributeError):
                continue
        return sorted((c for c in found if c), key=lambda c: c["ended"])

    # --- drills -------------------------------------------------------------------------------------------------------------

    def streak(self) -> dict[str, int]:
        """`now` and `best`: drills answered right in a row; `right` of `all`."""
        try:
            found = json.loads((self.folder / "drills.json").read_text(encoding="utf-8"))
            return {k: int(found[k]) for k in ("now", "best", "right", "all")}
        except (OSError, ValueError, KeyError, TypeError):
            return {"now": 0, "best": 0, "right": 0, "all": 0}

    def drilled(self, right: bool) -> dict[str, int]:
        """One more drill. The streak that now holds."""
        s = self.streak()
        s = {
            "now": s["now"] + 1 if right else 0,
            "best": max(s["best"], s["now"] + right),
            "right": s["right"] + right,
            "all": s["all"] + 1,
        }
        self.write("drills.json", json.dumps(s))
        return s

    def write(self, name: str, text: str) -> Path:
        """Raises BadInput when the state folder cannot be written."""
        return atomic.write(self.folder / name, text, "{path} cannot be written: {why}. Set FEEDLAB_STATE_DIR to a folder that can.",
                           folders=True)
