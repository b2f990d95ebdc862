"""SQL machines with planted bugs: each has to be found."""

from rsm_spark.core.machine import Decision
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.records import SqlRecord


class CommitsEarly(SqlMachine):
    """Keeps what is not confirmed."""

    def apply(self, record_type, fields, revision):
        change = super().apply(record_type, fields, revision)
        if not self._writer._pending:
            self._writer.execute("COMMIT")
        return change


class ForgetsTheMark(SqlMachine):
    """Keeps rows, and now and then no mark: they are folded twice."""

    kept = None
    count = 0

    def commit(self, mark, changes):
        self.count += 1
        if self.count % 3:
            self.kept = mark
        super().commit(self.kept or mark, changes)


class GivesIdsAgain(SqlMachine):
    """Does not log what AUTOINCREMENT has given."""

    def decide(self, command, revision, now_ms):
        decision = super().decide(command, revision, now_ms)
        kept = [one for one in decision.records if one[0] is not SqlRecord.SEQUENCE_PUT]
        if len(kept) != len(decision.records):
            self._writer._pending = [one for one in self._writer._pending if one.type is not SqlRecord.SEQUENCE_PUT]
            if not self._writer._pending:
                self._writer.execute("RELEASE command")
        return Decision(kept, decision.reply)


class ForgetsToRollBack(SqlMachine):
    """Leaves what a failed transaction did before it failed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        writer = self._writer
        undo = writer._undo

        def _undo():
            if writer._connection.in_transaction:
                writer.execute("RELEASE command")
                writer._load()
            else:
                undo()

        writer._undo = _undo


class LosesTheEntry(SqlMachine):
    """Does not write again what SQLite rolled back with a statement that failed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._writer._write_again = self._writer._load


class FiresTriggersAgain(SqlMachine):
    """Folds records with triggers on."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        begin = self._writer._begin
        self._writer._begin = lambda is_leading: begin(is_leading=True)


BUGS = (CommitsEarly, ForgetsTheMark, GivesIdsAgain, ForgetsToRollBack, LosesTheEntry, FiresTriggersAgain)


class TellsWhatWasRolledBack(SqlMachine):
    """Logs, beside the changes of a transaction, those of the statements of a failed one before it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        touched = self._writer._runner._touched
        forget, self._left = touched.clear, {}

        def _clear():
            self._left.update(touched._before)
            forget()
            if self._writer._connection.in_transaction:
                touched._before.update(
                    {place: b"\x90" for place in self._left if place[0] in self._writer.catalog.tables}
                )
            self._left = {}

        touched.clear = _clear


class BelievesWhatIsUndone(SqlMachine):
    """Takes rows for what SQLite's hook said of them, also when the statement that changed them was undone."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._writer._runner._touched.read_all = lambda: None


class TellsWrongOldValues(SqlMachine):
    """Tells as the old row what the first statement of a transaction made of it."""

    def decide(self, command, revision, now_ms):
        decision = super().decide(command, revision, now_ms)
        for place, one in enumerate(self._writer._pending):
            if one.type is SqlRecord.ROW_CHANGED and one.fields[3] is not None:
                one = one._replace(fields=(*one.fields[:3], b"\x90"))  # noqa: PLW2901
                self._writer._pending[place] = one
                decision.records[place] = (one.type, one.fields)
        return decision
