"""Every knob of feedlab in one place, read from the environment (prefix `FEEDLAB_`).

>>> Settings(feed_max=300).feed_max
300
"""
from pathlib import Path

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from .errors import BadInput

DAY = 86_400


def project_root() -> Path:
    """The checkout that this package runs from, else the current folder.

    An editable install (what `make` sets up) finds `docker-compose.yml` beside the package; two checkouts therefore never
    share a state folder, whatever folder a command was typed in.
    """
    beside = Path(__file__).resolve().parent.parent
    return beside if (beside / "docker-compose.yml").exists() else Path.cwd()


class Settings(BaseSettings):
    """Where the engines are, and the constants of the design (article, section 5) with their defaults."""

    model_config = SettingsConfigDict(env_prefix="FEEDLAB_", extra="ignore", env_ignore_empty=True)

    # --- engines: any that is set is "yours", the rest comes from containers or from packages
    postgres_url: str | None = None
    redis_url: str | None = None
    kafka_bootstrap: str | None = None
    engines: str = Field("auto", pattern="^(auto|yours|containers|embedded)$")
    state_dir: Path = Field(default_factory=lambda: project_root() / ".feedlab")

    # --- one namespace = one SQL schema, one prefix of Redis keys, one prefix of topics and groups
    namespace: str = Field("feedlab", pattern=r"^[a-z][a-z0-9_]{0,30}$")

    # --- the design's constants; threshold and feed_max are the starting values of the live knobs (see db.knobs)
    feed_max: int = Field(500, ge=1, le=100_000)
    threshold: int = Field(10_000, ge=0)
    batch: int = Field(1_000, ge=1, le=10_000)
    active_days: int = Field(30, ge=2)
    partitions: int = Field(8, ge=1, le=256)

    # a feed must be gone before its reader drops out of the follower query, so one day less than active_days
    # (protocol rule 8); a half-built timeline is given up after building_s (rule 4)
    building_s: int = Field(30, ge=1)
    celeb_ttl_s: int = Field(7 * DAY, ge=1)
    local_copy_s: float = Field(3.0, ge=0, description="age of a process's own copy of a celebrity timeline, 2-5 s")
    post_cache_s: int = Field(DAY, ge=1)
    trace_s: int = Field(3_600, ge=0, description="how long `feedlab trace` can tell; 0 switches tracing off")
    relay_poll_s: float = Field(0.5, gt=0, description="the net below LISTEN/NOTIFY")

    @field_validator("namespace")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in ("public", "information_schema") or name.startswith("pg_"):
            raise ValueError("that schema is PostgreSQL's own")
        return name

    def environment(self) -> dict[str, str]:
        """The variables that give a process of its own the same settings."""
        return {f"FEEDLAB_{name.upper()}": str(value) for name, value in self.model_dump().items() if value is not None}

    @property
    def feed_ttl_s(self) -> int:
        return (self.active_days - 1) * DAY


def settings(**changes) -> Settings:
    """Settings from the environment, with `changes` on top. Raises BadInput naming the variable that is wrong."""
    try:
        return Settings(**{k: v for k, v in changes.items() if v is not None})
    except ValidationError as e:
        first = e.errors()[0]
        name = "FEEDLAB_" + str(first["loc"][0]).upper()
        raise BadInput(f"{name}={first.get('input')!r} cannot be used: {first['msg']}. Change or unset {name}.") from None
