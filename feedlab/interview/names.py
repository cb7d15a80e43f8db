"""Names that scenarios refer to: kinds of steps, notebooks, faults."""

KINDS = ("clarify", "estimate", "choose", "predict", "order", "spot", "say")
NOTEBOOKS = (
    "00_start",
    "01_requirements_and_scale",
    "02_data_model",
    "03_api",
    "04_fanout_on_write",
    "05_fanout_on_read",
    "06_hybrid",
    "07_cursor_and_merge",
    "08_celebrities",
    "09_delete_follow_unfollow",
    "10_outbox",
    "11_bursts",
    "12_memory_and_feed_max",
    "13_when_not_to",
    "14_exactness",
    "policy_lab",
)
FAULTS = {  # the article's list, in a few words each; feedlab.verify.faults has them as histories
    "F1": "ties: more posts in one millisecond than a page holds",
    "F2": "crossing the threshold: what was pulled when written is pushed when read",
    "F3": "a delivery onto an evicted feed makes a feed of one that looks whole",
    "F4": "below the oldest pushed entry the celebrities' posts go on alone",
    "F5": "a backfill of 20 leaves a hole below the twentieth",
    "F6": "the page is cut first and filtered afterwards",
    "F7": "a rebuild races a delivery, and one of the two is lost",
    "F8": "a relay that asks for `id > last` passes over a row that commits late",
    "F9": "a malformed cursor is a 500",
    "F10": "unfollow, then a delivery that read the old follower list",
    "F11": "bytes an entry that are true of no Redis",
    "F12": "a follower count that is one hot row, and loses updates",
}
PROBES = ("F9", "F11", "F12")  # not about pages: no history, a probe
