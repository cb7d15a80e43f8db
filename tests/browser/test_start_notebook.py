"""The first notebook in a real browser: opens, runs to the end, draws its charts, asks nobody outside."""
from browser_parts import ERRORS, fresh_copy, open_notebook, run_all
from conftest import until


def test_start_runs_to_the_end(watched, jupyter):
    page = watched.page
    open_notebook(page, jupyter, fresh_copy("00_start.ipynb"))
    run_all(page)
    failed = page.locator(ERRORS)

    def ended():
        return page.get_by_text("right: exercise 2").count() or failed.count()
    try:
        until(ended, 150, "the end of the notebook")
    finally:
        watched.shot("00_start")
    assert page.get_by_text("holds: every sampled scroll equals the SQL answer").count() == 1
    assert page.locator(".js-plotly-plot").count() == 3
    page.locator(".js-plotly-plot").first.scroll_into_view_if_needed()
    watched.shot("00_start_chart")
    watched.clean()
