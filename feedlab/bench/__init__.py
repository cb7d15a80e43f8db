"""What every station costs, side by side with what one would use instead: `feedlab bench`.

    delivery      decoded record -> Redis has answered, beside bare ZADD, the textbook's pipeline, one round trip a follower
    whole_push    outbox commit -> feeds, beside relay alone and consumer alone
    relay         outbox rows -> acknowledged records, beside the same bytes produced from memory
    page_cached   page one from Redis, beside two bare Redis commands and the SQL pull
    page_cold     a rebuild, and a page below the floor, beside the SQL pull
    visible       a post -> a follower's page, beside a round trip through Kafka
    memory        bytes an entry, beside the formula of `core.cost` and the article's 60
    scaling       1, 2, 4 consumer processes
    growth        each of the above at 1x, 10x, 100x, with the exponent

A station is a function `run(settings, addresses, ...)`. It works in a namespace of its own, which it wipes, on whatever engines the
addresses name. It returns plain data: `rows` (ours beside the other, ratios over several interleaved rounds), `counts` (exact; a test
asserts them), `points` for a figure, `profile` (where the time goes), `seconds`. A figure in it was measured in that very run.
"""
