"""What the browser tests share."""
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts"      # screenshots of the run; not committed
