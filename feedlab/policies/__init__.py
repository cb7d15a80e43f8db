"""The policy lab: a team's own follow graph and rates in, a threshold it can defend out.

    graphs      follow graphs and degree histograms from files, presets
    rates       posts and reads a day, traces of timestamps
    simulate    what a policy costs on them: every edge, or classes of alike ones
    bursts      lag, freshness and fairness over time
    files       policy.toml, which the fan-out consumer loads
    report      the page to hand on
"""
