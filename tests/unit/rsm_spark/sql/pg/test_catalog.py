"""PostgreSQL's system catalog over SQL tables: what clients ask, as they ask it, and what they are told."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from rsm_spark.sql.pg.catalog import PgCatalog
from rsm_spark.sql.pg.catalog_functions import CatalogAsker, shown_array
from rsm_spark.sql.pg.catalog_schema import SCHEMA_SQL, catalog_of, shown_rows
from rsm_spark.sql.pg.catalog_tables import TABLES, catalog_rows
from rsm_spark.sql.pg.dialect import respelled
from rsm_spark.sql.pg.faults import PgFault
from rsm_spark.sql.pg.lexing import statements_of
from rsm_spark.sql.table_rights import TableRights

_SCHEMA = """
CREATE TABLE item (id INTEGER PRIMARY KEY AUTOINCREMENT, name VARCHAR(40) NOT NULL UNIQUE,
                   price NUMERIC(10,2) DEFAULT 1.5, at TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE sale (a INT, b INT, item INT REFERENCES item ON DELETE CASCADE, note TEXT, ok BOOLEAN, PRIMARY KEY (a, b));
CREATE INDEX sale_note ON sale (note, item);
CREATE VIEW cheap AS SELECT id, name FROM item WHERE price < 2;
CREATE TRIGGER noted AFTER INSERT ON sale BEGIN UPDATE item SET price = 0 WHERE id = new.item; END;
CREATE TABLE _rsm_mark (one);
"""


@pytest.fixture(scope="module")
def schema() -> list[tuple[Any, ...]]:
    base = sqlite3.connect(":memory:")
    base.executescript(_SCHEMA)
    return base.execute(SCHEMA_SQL).fetchall()


class Asks:
    """A client of the catalog."""

    def __init__(
        self, schema: list[tuple[Any, ...]], rights: TableRights | None = None, *, may_write: bool = True
    ) -> None:
        self.catalog = PgCatalog("shop")
        self.schema = schema
        self.asker = CatalogAsker("ann", {"TimeZone": "UTC"}, rights, may_write=may_write)

    def __call__(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        (lexed,) = statements_of(sql)
        assert lexed.is_of_system
        return list(self.catalog.answer(respelled(lexed), values, self.schema, self.asker).rows)


@pytest.fixture
def ask(schema):
    asks = Asks(schema)
    yield asks
    asks.catalog.close()


def test_tables_columns_and_keys_of_a_schema(schema):
    cheap, item, sale = catalog_of(schema)
    assert [column.name for column in item.columns] == ["id", "name", "price", "at"]
    assert (item.is_numbered, item.key, sale.is_numbered, sale.key) == (True, ("id",), False, ("a", "b"))
    assert [(one.name, one.columns, one.origin) for one in item.indexes] == [
        ("item_pkey", ("id",), "pk"), ("item_name_key", ("name",), "u"),
    ]  # fmt: skip
    assert sale.references[0].others == ("id",), "a reference to a whole key names its columns"
    assert (cheap.is_view, len(cheap.columns), sale.triggers[0][0]) == (True, 2, "noted")


def test_numbers_of_things_are_the_same_everywhere_and_each_row_is_whole(schema):
    one, other = (catalog_rows(catalog_of(schema), "shop", {"a": "b"}) for _ in range(2))
    assert one == other
    for name, rows in one.rows.items():
        count = TABLES[name].count(",") + 1
        assert all(len(row) == count for row in rows), name
    again = catalog_rows(catalog_of([row for row in schema if row[1] != "cheap"]), "shop", {})
    assert {oid: name for oid, name in one.names.items() if name != "cheap"} == again.names


def test_psql_is_told_of_tables(ask):
    listed = """SELECT n.nspname as "Schema", c.relname as "Name",
      CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END as "Type",
      pg_catalog.pg_get_userbyid(c.relowner) as "Owner"
    FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r','p','v','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast'
      AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2"""
    assert [row[:3] for row in ask(listed)] == [
        ("public", "cheap", "view"), ("public", "item", "table"), ("public", "sale", "table"),
    ]  # fmt: skip
    named = """SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname OPERATOR(pg_catalog.~) '^(sale)$' COLLATE pg_catalog.default ORDER BY 2, 3"""
    ((oid, _, name),) = ask(named)
    assert name == "sale"
    columns = f"""SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
      (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d
       WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = '{oid}' AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum"""
    assert ask(columns)[:3] == [("a", "bigint", None, 1), ("b", "bigint", None, 1), ("item", "bigint", None, 0)]
    indexes = f"""SELECT c2.relname, i.indisprimary, pg_catalog.pg_get_indexdef(i.indexrelid, 0, true),
      pg_catalog.pg_get_constraintdef(con.oid, true), contype
    FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i
    LEFT JOIN pg_catalog.pg_constraint con ON (conrelid = i.indrelid AND conindid = i.indexrelid)
    WHERE c.oid = '{oid}' AND c.oid = i.indrelid AND i.indexrelid = c2.oid ORDER BY i.indisprimary DESC, c2.relname"""
    assert ask(indexes) == [
        ("sale_pkey", 1, "CREATE UNIQUE INDEX sale_pkey ON public.sale USING btree (a, b)", "PRIMARY KEY (a, b)", "p"),
        ("sale_note", 0, "CREATE INDEX sale_note ON public.sale USING btree (note, item)", None, None),
    ]
    policies = f"""SELECT pg_catalog.array_to_string(array(select rolname from pg_catalog.pg_roles
    where oid = any (pol.polroles) order by 1),',') FROM pg_catalog.pg_policy pol WHERE pol.polrelid = '{oid}'"""
    assert ask(policies) == []
    references = f"""SELECT conname, pg_catalog.pg_get_constraintdef(r.oid, true), conrelid::pg_catalog.regclass
    FROM pg_catalog.pg_constraint r WHERE r.conrelid = '{oid}' AND r.contype = 'f'"""
    assert ask(references) == [("sale_item_fkey", "FOREIGN KEY (item) REFERENCES item(id) ON DELETE CASCADE", "sale")]


def test_pgjdbc_is_told_of_keys_and_indexes(ask):
    keys = """SELECT result.COLUMN_NAME, result.KEY_SEQ, result.PK_NAME FROM (SELECT a.attname AS COLUMN_NAME,
      (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME,
      information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM, ct.relname AS TABLE_NAME
    FROM pg_catalog.pg_class ct JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid)
      JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
    WHERE true AND ct.relname = 'sale' AND i.indisprimary) result where result.A_ATTNUM = (result.KEYS).x
    ORDER BY result.table_name, result.pk_name, result.key_seq"""
    assert ask(keys) == [("a", 1, "sale_pkey"), ("b", 2, "sale_pkey")]
    imported = """SELECT pkc.relname, pka.attname, fka.attname FROM pg_catalog.pg_class pkc,
       pg_catalog.pg_attribute pka,
      pg_catalog.pg_class fkc, pg_catalog.pg_attribute fka, pg_catalog.pg_constraint con,
      pg_catalog.generate_series(1, 32) pos(n)
    WHERE pkc.oid = pka.attrelid AND pka.attnum = con.confkey[pos.n] AND con.confrelid = pkc.oid
      AND fkc.oid = fka.attrelid AND fka.attnum = con.conkey[pos.n] AND con.conrelid = fkc.oid AND con.contype = 'f'"""
    assert ask(imported) == [("item", "id", "item")]
    schemas = """SELECT nspname FROM pg_catalog.pg_namespace
    WHERE nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1] ORDER BY 1"""
    assert ask(schemas) == [("information_schema",), ("pg_catalog",), ("public",)]


def test_sqlalchemy_and_django_are_told_of_columns(ask):
    spread = """SELECT c.relname, attnum, ord FROM (SELECT indexrelid, unnest(indkey) AS attnum,
      generate_subscripts(indkey, 1) AS ord FROM pg_catalog.pg_index WHERE NOT indisprimary) AS i
    JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid ORDER BY 1, 3"""
    assert ask(spread) == [("item_name_key", 2, 0), ("sale_note", 4, 0), ("sale_note", 3, 1)]
    assert ask("SELECT array_agg(CAST(relname AS TEXT)) FROM pg_catalog.pg_class WHERE relkind = 'r'") == [
        ("{item,sale}",)
    ]
    columns = """SELECT column_name, data_type, is_nullable, column_default, character_maximum_length
    FROM information_schema.columns WHERE table_schema = 'public' AND table_name = $1 ORDER BY ordinal_position"""
    assert ask(columns, "item") == [
        ("id", "bigint", "NO", "nextval('item_id_seq'::regclass)", None),
        ("name", "character varying", "NO", None, 40),
        ("price", "numeric", "YES", "1.5", None),
        ("at", "timestamp with time zone", "YES", "CURRENT_TIMESTAMP", None),
    ]
    used = """SELECT constraint_name, column_name FROM information_schema.key_column_usage
    WHERE table_name = 'sale' ORDER BY constraint_name, ordinal_position"""
    assert ask(used) == [("sale_item_fkey", "item"), ("sale_pkey", "a"), ("sale_pkey", "b")]


def test_django_inspects_indexes_and_keys(ask):
    indexes = """SELECT indexname, array_agg(attname ORDER BY arridx), indisunique, indisprimary,
      array_agg(ordering ORDER BY arridx), amname, exprdef, s2.attoptions
    FROM (SELECT c2.relname as indexname, idx.*, attr.attname, am.amname,
        CASE WHEN idx.indexprs IS NOT NULL THEN pg_get_indexdef(idx.indexrelid) END AS exprdef,
        CASE am.amname WHEN $1 THEN CASE (option & 1) WHEN 1 THEN 'DESC' ELSE 'ASC' END END as ordering,
        c2.reloptions as attoptions
      FROM (SELECT * FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY koi(key, option, arridx)) idx
      LEFT JOIN pg_class c ON idx.indrelid = c.oid LEFT JOIN pg_class c2 ON idx.indexrelid = c2.oid
      LEFT JOIN pg_am am ON c2.relam = am.oid
      LEFT JOIN pg_attribute attr ON attr.attrelid = c.oid AND attr.attnum = idx.key
      WHERE c.relname = $2 AND pg_catalog.pg_table_is_visible(c.oid)) s2
    GROUP BY indexname, indisunique, indisprimary, amname, exprdef, attoptions"""
    assert sorted(ask(indexes, "btree", "sale")) == [
        ("sale_note", "{note,item}", 0, 0, "{ASC,ASC}", "btree", None, None),
        ("sale_pkey", "{a,b}", 1, 1, "{ASC,ASC}", "btree", None, None),
    ]
    named = """SELECT i.indrelid::regclass, u.place * 10, spot FROM pg_index AS i
    CROSS JOIN unnest(i.indkey, i.indoption) WITH ORDINALITY AS u (spot, o, place)
    WHERE i.indisprimary AND u.place = 2"""
    assert ask(named) == [("sale", 20, 2)]
    keys = """SELECT c.conname, array(SELECT attname FROM unnest(c.conkey) WITH ORDINALITY cols(colid, arridx)
      JOIN pg_attribute AS ca ON cols.colid = ca.attnum WHERE ca.attrelid = c.conrelid ORDER BY cols.arridx), c.contype
    FROM pg_constraint AS c JOIN pg_class AS cl ON c.conrelid = cl.oid WHERE cl.relname = $1 ORDER BY 1"""
    assert ask(keys, "sale") == [("sale_item_fkey", "{item}", "f"), ("sale_pkey", "{a,b}", "p")]


def test_functions_say_who_and_where(ask):
    asked = "SELECT current_database(), current_user, session_user, current_schemas(true), current_setting('TimeZone')"
    assert ask(asked) == [("shop", "ann", "ann", "{pg_catalog,public}", "UTC")]
    assert ask("SELECT 'item'::regclass::oid = to_regclass('public.item'), pg_backend_pid()") == [(1, 0)]
    assert ask("SELECT tablename FROM pg_tables WHERE tablename = ANY(ARRAY['item', 'x'])") == [("item",)]
    assert ask("SELECT format_type(1043, 44), format_type(1700, 655366), format_type(1009, -1)") == [
        ("character varying(40)", "numeric(10,2)", "text[]")
    ]


def test_the_catalog_is_as_the_tables_are(ask, schema):
    assert ask("SELECT count(*) FROM pg_catalog.pg_tables") == [(2,)]
    ask.schema = [row for row in schema if row[1] != "sale" and (row[0] != "object" or row[3] != "sale")]
    assert ask("SELECT tablename FROM pg_catalog.pg_tables") == [("item",)]
    assert ask.catalog.columns("SELECT oid, relname FROM pg_class WHERE oid = ?1", schema) == (
        ("oid", "OID"), ("relname", "NAME"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("DELETE FROM pg_catalog.pg_class", "42000"),
        ("ATTACH 'x' AS pg_x", "42000"),
        ("SELECT load_extension('pg_x')", "42000"),
        ("SELECT * FROM pg_nothing", "42P01"),
        ("SELECT pg_nothing()", "42883"),
        ("SELECT relname FROM pg_class WHERE relname ~ '(a+)+$'", "42000"),
        ("SELECT hex(zeroblob(3000000)) FROM pg_class", "54000"),
        ("SELECT count(*) FROM pg_type, pg_type b, pg_type c, pg_type d, pg_type e, pg_type f", "57014"),
    ],
)
def test_what_is_wrong_or_too_much_is_refused(ask, monkeypatch, sql, code):
    monkeypatch.setattr("rsm_spark.sql.pg.catalog._TIME_S", 0.05)
    (lexed,) = statements_of(sql)
    with pytest.raises(PgFault) as refused:
        ask.catalog.answer(respelled(lexed), (), ask.schema, ask.asker)
    assert refused.value.code in (code, "42501", "0A000"), refused.value


def test_arrays_are_written_as_postgresql_does():
    assert shown_array('\x02["a", "b c", null, "d\\"e"]') == '{a,"b c",NULL,"d\\"e"}'
    assert shown_array("[1, 2]") == "{1,2}"


def test_who_has_some_tables_is_told_of_these_and_of_its_rights(schema):
    rights = TableRights(("sale",), (), ("cheap",))
    asks = Asks(shown_rows(schema, rights.may_see), rights)
    assert asks("SELECT relname FROM pg_class WHERE relname NOT LIKE 'pg_%' ORDER BY 1") == [
        ("cheap",), ("sale",), ("sale_note",), ("sale_pkey",),
    ]  # fmt: skip
    # It refers to a table of which nothing is told.
    assert asks("SELECT conname FROM pg_constraint WHERE contype = 'f'") in ([], [("sale_item_fkey",)])
    for privilege, of_sale, of_cheap in (
        ("SELECT", 1, 0), ("insert", 0, 0), ("UPDATE, SELECT", 1, 0), ("TRIGGER", 0, 1),
        ("SELECT WITH GRANT OPTION", 0, 0),
    ):  # fmt: skip
        asked = "SELECT has_table_privilege('public.sale', $1), has_table_privilege(current_user, 'cheap', $1)"
        assert [tuple(map(int, row)) for row in asks(asked, privilege)] == [(of_sale, of_cheap)], privilege
    assert asks("SELECT has_table_privilege('item', 'SELECT')") == [(None,)]
    assert asks("SELECT has_column_privilege('sale', 'note', 'SELECT') FROM pg_database") == [(1,)]
    by_number = "SELECT has_table_privilege(oid, 'SELECT') FROM pg_class WHERE relname IN ('sale', 'cheap')"
    assert sorted(asks(by_number)) == [(0,), (1,)]
    asks.catalog.close()


_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN", "RULE")


@pytest.mark.parametrize(
    ("rights", "may_write", "has"),
    [
        (None, True, "SELECT INSERT UPDATE DELETE TRUNCATE REFERENCES TRIGGER"),
        (None, False, "SELECT"),  # access = "read", and no names of tables.
        (TableRights(("*",)), False, "SELECT"),
        (TableRights((), ("item",)), True, "INSERT UPDATE DELETE TRUNCATE"),
        (TableRights((), (), ("item",)), True, "REFERENCES TRIGGER"),
    ],
)
def test_each_privilege_is_had_as_the_port_allows_it(schema, rights, may_write, has):
    asks = Asks(schema, rights, may_write=may_write)
    for privilege in _PRIVILEGES:
        for call in ("has_table_privilege('item', $1)", "has_table_privilege('ann', 'public.item', $1)",
                     "has_any_column_privilege('item', $1)", "has_column_privilege('item', 'name', $1)"):  # fmt: skip
            asked = f"SELECT {call}, version()"
            assert asks(asked, privilege)[0][0] == int(privilege in has.split()), (call, privilege)
            assert asks(asked, f"{privilege.lower()}  with grant option")[0][0] == 0, "rights are in a file"
    assert asks("SELECT has_table_privilege('item', 'MAINTAIN, SELECT, insert')")[0][0] == int(
        bool({"SELECT", "INSERT"} & set(has.split()))
    )
    assert asks("SELECT has_table_privilege('item', NULL)") == [(None,)]
    with pytest.raises(PgFault, match="unrecognized privilege type"):
        asks("SELECT has_table_privilege('item', 'SELECT, FLY')")
    asks.catalog.close()


@pytest.mark.parametrize(
    ("rights", "may_write", "may_create"),
    [
        (None, True, 1),
        (None, False, 0),
        (TableRights(("*",), ("*",)), True, 0),
        (TableRights((), (), ("mine*",)), True, 1),
    ],
)
def test_who_may_make_no_table_has_no_right_to_create_in_a_schema(schema, rights, may_write, may_create):
    asks = Asks(schema, rights, may_write=may_write)

    def has(call, privilege="CREATE"):
        return asks(f"SELECT {call}, version()", privilege)[0][0]

    for call in ("has_schema_privilege('public', $1)", "has_schema_privilege(current_user, 'public', $1)",
                 "has_schema_privilege(2200, $1)"):  # fmt: skip
        assert has(call) == may_create
        assert has(call, "usage") == has(call, "CREATE, USAGE") == 1
        assert has(call, "CREATE WITH GRANT OPTION") == 0
    assert has("has_schema_privilege('pg_catalog', $1)") == has("has_schema_privilege('information_schema', $1)") == 0
    assert has("has_schema_privilege(77, $1)") is None
    by_number = asks("SELECT nspname, has_schema_privilege(oid, 'CREATE') FROM pg_namespace ORDER BY 1")
    assert by_number == [("information_schema", 0), ("pg_catalog", 0), ("public", may_create)]
    with pytest.raises(PgFault, match="schema 'other' does not exist"):
        has("has_schema_privilege('other', $1)")
    with pytest.raises(PgFault, match="unrecognized privilege type"):
        has("has_schema_privilege('public', $1)", "SELECT")
    asks.catalog.close()


def test_nobody_makes_schemas_or_temporary_tables_and_everybody_calls_functions(ask):
    for privileges, wanted in (("CONNECT", 1), ("CREATE", 0), ("TEMP", 0), ("temporary, connect", 1)):
        asked = (
            "SELECT has_database_privilege(current_database(), $1), has_database_privilege(oid, $1) FROM pg_database"
        )
        assert ask(asked, privileges) == [(wanted, wanted)]
    assert ask("SELECT has_database_privilege(7, 'CONNECT'), version()")[0][0] is None
    with pytest.raises(PgFault, match="database 'other' does not exist"):
        ask("SELECT has_database_privilege('other', 'CONNECT'), version()")
    assert ask("SELECT has_sequence_privilege('item_id_seq', 'USAGE'), version()")[0][0] is None
    assert ask("SELECT has_function_privilege('version()', 'EXECUTE'), version()")[0][0] == 1
