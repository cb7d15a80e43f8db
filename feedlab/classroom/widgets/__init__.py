"""Six widgets for the notebooks, each on live engines. Made quickly, and doing nothing to an engine before a button is pressed.

    from feedlab.classroom import widgets
    widgets.threshold(b)         # b: an open book (feedlab.classroom.book); the last line of a cell of its own

Calling one again in the same notebook stops the earlier one of its kind; `b.end()` stops all. What a control does is a method of the
widget (`w.on_threshold(200)`), or set the control itself (`w.threshold.value = 200`). `w.static()` is the chart alone.
"""


def threshold(b):
    """Threshold, active users and activity skew against feed writes a post and pulls a page: model at once, live beside it."""
    from .threshold_explorer import ThresholdExplorer
    return ThresholdExplorer(b)


def feed_max(b):
    """FEED_MAX and encoding limit against bytes a feed and reads below the floor; a probe measures both."""
    from .feed_max_explorer import FeedMaxExplorer
    return FeedMaxExplorer(b)


def way(b):
    """One post stepped through row, outbox, partition, consumer and feeds; stations can be killed, records replayed."""
    from .way_of_a_post import WayOfAPost
    return WayOfAPost(b)


def microscope(b):
    """One feed: its entries and floor in Redis, the celebrities, SQL, and how the merge draws a page from them."""
    from .feed_microscope import FeedMicroscope
    return FeedMicroscope(b)


def burst(b):
    """Posts a second, lag, the controller's threshold and the visible delay, while bursts come and a consumer is killed."""
    from .burst_console import BurstConsole
    return BurstConsole(b)


def faults(b):
    """F1 to F12: the textbook and ours on the same history, side by side."""
    from .fault_chooser import FaultChooser
    return FaultChooser(b)


def stop_all() -> None:
    """Stop what any widget of this kernel runs, for example before something is counted in its namespace."""
    from .base import _live
    for widget in list(_live.values()):
        widget.stop()
