"""SQLAlchemy 2 on SQL tables, over PostgreSQL's port with psycopg: schema, ORM, transactions, reflection."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.exc import IntegrityError

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import place, serve, until_led

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class _Base(orm.DeclarativeBase):
    """Tables of the tests."""


class _Author(_Base):
    __tablename__ = "author"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(40), unique=True)
    born: orm.Mapped[dt.date | None]
    books: orm.Mapped[list[_Book]] = orm.relationship(back_populates="author", cascade="all, delete-orphan")


class _Book(_Base):
    __tablename__ = "book"
    __table_args__ = (sa.Index("book_title", "title", "author_id"),)

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"))
    title: orm.Mapped[str] = orm.mapped_column(sa.Text)
    price: orm.Mapped[Decimal | None] = orm.mapped_column(sa.Numeric(10, 2))
    sold: orm.Mapped[bool] = orm.mapped_column(default=False)
    at: orm.Mapped[dt.datetime] = orm.mapped_column(server_default=sa.func.now())
    about: orm.Mapped[dict[str, Any] | None] = orm.mapped_column(sa.JSON)
    author: orm.Mapped[_Author] = orm.relationship(back_populates="books")


@pytest.fixture
def engine(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[sa.Engine]:
    """Engine at a follower of two replicas."""
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        places = [place(serve(replicas, name, "--command-s-max", "60")) for name in "ab"]
        at = places[1]
        made = sa.create_engine(f"postgresql+psycopg://ann@{at['host']}:{at['port']}/{at['dbname']}")

        def ask() -> None:
            try:
                with made.connect() as connection:
                    connection.execute(sa.text("SELECT 1"))
            except sa.exc.OperationalError as error:
                raise error.orig or error from None

        until_led(ask)
        yield made
        made.dispose()


def test_sqlalchemys_orm_works(engine: sa.Engine) -> None:
    _Base.metadata.create_all(engine)
    _Base.metadata.create_all(engine)  # What is there stays.
    with orm.Session(engine) as session:
        ann = _Author(name="ann", born=dt.date(1990, 1, 2))
        ann.books = [_Book(title=f"b{n}", price=Decimal("1.25") * n, about={"pages": n}) for n in range(5)]
        session.add_all([ann, _Author(name="ben")])
        session.commit()
        assert [book.id for book in ann.books] == [1, 2, 3, 4, 5]
        assert isinstance(ann.books[0].at, dt.datetime)
    with orm.Session(engine) as session:
        _queries(session)
        _changes(session)
        _savepoints(session)
    _is_reflected(engine)
    _core(engine)
    _Base.metadata.drop_all(engine)
    assert sa.inspect(engine).get_table_names() == []


def _queries(session: orm.Session) -> None:
    found = session.scalars(sa.select(_Author).options(orm.selectinload(_Author.books)).order_by(_Author.name)).all()
    assert [(one.name, one.born, len(one.books)) for one in found] == [
        ("ann", dt.date(1990, 1, 2), 5),
        ("ben", None, 0),
    ]
    joined = (
        sa.select(_Author.name, sa.func.count(_Book.id), sa.func.sum(_Book.price))
        .outerjoin(_Book).group_by(_Author.name).having(sa.func.count(_Book.id) >= 0).order_by(_Author.name)
    )  # fmt: skip
    assert [(name, count) for name, count, _ in session.execute(joined)] == [("ann", 5), ("ben", 0)]
    assert session.scalar(sa.select(_Book.price).where(_Book.title == "b3")) == Decimal("3.75")
    assert session.scalar(sa.select(_Book.about).where(_Book.title == "b3")) == {"pages": 3}
    paged = sa.select(_Book.title).where(_Book.title.ilike("B%"), _Book.id.in_([1, 2, 3])).order_by(_Book.id.desc())
    assert session.scalars(paged.limit(2).offset(1)).all() == ["b1", "b0"]
    numbered = sa.select(_Book.id, sa.func.row_number().over(order_by=_Book.id.desc())).order_by(_Book.id)
    assert session.execute(numbered).first() == (1, 5)
    common = sa.select(_Book.id).where(_Book.id > 3).cte("late")
    assert session.scalars(sa.select(common.c.id).order_by(common.c.id)).all() == [4, 5]
    assert not session.scalar(sa.select(sa.exists().where(_Book.title == "b9")))
    year = sa.select(sa.extract("year", _Author.born)).where(_Author.name == "ann")
    assert session.scalar(year) == 1990
    session.rollback()


def _changes(session: orm.Session) -> None:
    book = session.scalars(sa.select(_Book).where(_Book.title == "b0").with_for_update()).one()
    book.title, book.sold = "first", True
    session.commit()
    assert session.scalars(sa.select(_Book.title).where(_Book.sold)).all() == ["first"]
    done = session.execute(sa.update(_Book).where(_Book.id < 3).values(price=_Book.price + 1).returning(_Book.id))
    assert sorted(done.scalars()) == [1, 2]
    session.execute(sa.delete(_Book).where(_Book.id == 5))
    session.add_all(
        [_Author(name=f"many {n}") for n in range(300)]
    )  # One INSERT of many rows, which returns their ids.
    session.commit()
    assert session.scalar(sa.select(sa.func.count()).select_from(_Author)) == 302
    session.execute(sa.delete(_Author).where(_Author.name.like("many %")))
    session.commit()


def _savepoints(session: orm.Session) -> None:
    with session.begin():
        with pytest.raises(IntegrityError), session.begin_nested():
            session.add(_Author(name="ann"))
        with session.begin_nested():
            session.add(_Author(name="cid"))
    session.execute(sa.delete(_Author))
    session.rollback()
    assert session.scalars(sa.select(_Author.name).order_by(_Author.name)).all() == ["ann", "ben", "cid"]
    session.rollback()


def _is_reflected(engine: sa.Engine) -> None:
    tells = sa.inspect(engine)
    assert sorted(tells.get_table_names()) == ["author", "book"]
    assert tells.get_pk_constraint("book")["constrained_columns"] == ["id"]
    (foreign,) = tells.get_foreign_keys("book")
    assert (foreign["constrained_columns"], foreign["referred_table"]) == (["author_id"], "author")
    assert [one["column_names"] for one in tells.get_indexes("book")] == [["title", "author_id"]]
    assert [one["column_names"] for one in tells.get_unique_constraints("author")] == [["name"]]
    table = sa.Table("book", sa.MetaData(), autoload_with=engine)
    kinds = {column.name: column.type.python_type for column in table.columns if column.name != "about"}
    assert kinds == {
        "id": int, "author_id": int, "title": str, "price": Decimal, "sold": bool, "at": dt.datetime,
    }  # fmt: skip


def _core(engine: sa.Engine) -> None:
    """Statements without the ORM, and an isolation level that commits each of them."""
    table = _Base.metadata.tables["author"]
    with engine.begin() as connection:
        connection.execute(sa.insert(table), [{"name": f"n{n}"} for n in range(1_000)])
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection:
        connection.execute(sa.delete(table).where(table.c.name == "n1"))
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).where(table.c.name.like("n%"))) == 999
