"""The same steps drawn by hypothesis, which shrinks what fails by itself: each example is one history on live engines."""
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from feedlab.verify.histories import KINDS, History

USERS = 4
ARGUMENTS = {"u": st.integers(0, USERS - 1), "n": st.sampled_from([1, 2, 3, 5, 9]), "k": st.integers(0, 20),
             "c": st.integers(1, 8), "w": st.sampled_from(["relay", "consume"])}
PLAIN = sorted(name for name, (_, kinds) in KINDS.items() if set(kinds) <= set("unkcw"))


@st.composite
def steps(draw) -> list:
    name = draw(st.sampled_from(PLAIN))
    return [name, *(draw(ARGUMENTS[kind]) for kind in KINDS[name][1])]


@pytest.mark.parametrize(("system", "right"), [("ours", True), ("textbook", False)])
def test_any_order_of_steps(runners, system, right):
    runner = runners(system)

    class Feed(RuleBasedStateMachine):
        @initialize(feed_max=st.integers(1, 5), threshold=st.sampled_from([1, 2, 99]))
        def start(self, feed_max, threshold):
            runner.begin(History([], USERS, [[0, 1], [0, 2], [3, 1]], feed_max, threshold))
            self.begun = True

        @rule(step=steps())
        def any_step(self, step):
            runner.do(step)

        @rule(u=ARGUMENTS["u"], a=ARGUMENTS["u"], name=st.sampled_from(["follow", "unfollow"]))
        def graph(self, u, a, name):
            if u != a:
                runner.do([name, u, a])

        @rule(author=ARGUMENTS["u"])
        def post_and_deliver(self, author):
            runner.do(["post", author])
            runner.do(["pump"])

        def teardown(self):
            if getattr(self, "begun", False):
                report = runner.finish()
                assert not report.wrong, str(report)

    few = settings(max_examples=12, stateful_step_count=25, deadline=None, database=None, derandomize=not right,
                   suppress_health_check=list(HealthCheck), print_blob=True)
    if right:
        run_state_machine_as_test(Feed, settings=few)
    else:
        with pytest.raises(AssertionError, match="wrong"):
            run_state_machine_as_test(Feed, settings=settings(few, phases=["generate"]))
