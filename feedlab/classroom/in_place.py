"""Errors of the engines, shown in a notebook as one line in place of a traceback."""


def quiet_errors(shell) -> None:
    """Errors of the engines become one line that says what to do; the cell still fails."""
    import psycopg
    from confluent_kafka import KafkaException
    from redis.exceptions import RedisError

    from ..addresses import sentence

    def in_place(self, etype, value, tb, tb_offset=None):
        line = [f"{etype.__name__}: {sentence(value) or value}"]
        if "connection is closed" in str(value):       # of a book that was begun anew, or has ended
            line = ["This connection belongs to a book that has ended or was begun anew. Run the cells again, from the one after "
                    "book.begin on."]
        self._showtraceback(etype, value, line)
        return line
    shell.set_custom_exc((psycopg.OperationalError, psycopg.InterfaceError, RedisError, KafkaException), in_place)
