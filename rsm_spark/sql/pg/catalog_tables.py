"""PostgreSQL's system catalog and its information_schema, of SQL tables: which tables there are, and their rows. Pure.

What has no like here has a table without rows, so that a client's question is answered with none.
"""

# Longer than 400 lines: half of it is the list of tables and their columns.

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rsm_spark.sql.pg import values as v
from rsm_spark.sql.pg.catalog_schema import CatalogColumn, CatalogForeignKey, CatalogIndex, CatalogTable

SCHEMAS: Final = ("pg_catalog", "information_schema")
CATALOG_OID: Final = 11
PUBLIC_OID: Final = 2200
INFORMATION_OID: Final = 13_000
OWNER_OID: Final = 10
DATABASE_OID: Final = 16_384
_BTREE: Final = 403
_HEAP: Final = 2
_CLASS, _CONSTRAINT = 1259, 2606
_COLLATION: Final = 100

_PG: Final = {
    "pg_namespace": "oid OID, nspname NAME, nspowner OID, nspacl TEXT",
    "pg_class": "oid OID, relname NAME, relnamespace OID, reltype OID, reloftype OID, relowner OID, relam OID, "
    "relfilenode OID, reltablespace OID, relpages INT4, reltuples FLOAT4, relallvisible INT4, reltoastrelid OID, "
    "relhasindex BOOLEAN, relisshared BOOLEAN, relpersistence TEXT, relkind TEXT, relnatts INT2, relchecks INT2, "
    "relhasrules BOOLEAN, relhastriggers BOOLEAN, relhassubclass BOOLEAN, relrowsecurity BOOLEAN, "
    "relforcerowsecurity BOOLEAN, relispopulated BOOLEAN, relreplident TEXT, relispartition BOOLEAN, relrewrite OID, "
    "relfrozenxid INT4, relminmxid INT4, relacl TEXT, reloptions TEXT, relpartbound TEXT, relhasoids BOOLEAN, "
    "xmin INT8, tableoid OID",
    "pg_attribute": "attrelid OID, attname NAME, atttypid OID, attstattarget INT4, attlen INT2, attnum INT2, "
    "attndims INT4, attcacheoff INT4, atttypmod INT4, attbyval BOOLEAN, attalign TEXT, attstorage TEXT, "
    "attcompression TEXT, attnotnull BOOLEAN, atthasdef BOOLEAN, atthasmissing BOOLEAN, attidentity TEXT, "
    "attgenerated TEXT, attisdropped BOOLEAN, attislocal BOOLEAN, attinhcount INT4, attcollation OID, attacl TEXT, "
    "attoptions TEXT, attfdwoptions TEXT, attmissingval TEXT",
    "pg_attrdef": "oid OID, adrelid OID, adnum INT2, adbin TEXT, adsrc TEXT",
    "pg_type": "oid OID, typname NAME, typnamespace OID, typowner OID, typlen INT2, typbyval BOOLEAN, typtype TEXT, "
    "typcategory TEXT, typispreferred BOOLEAN, typisdefined BOOLEAN, typdelim TEXT, typrelid OID, typsubscript TEXT, "
    "typelem OID, typarray OID, typinput TEXT, typoutput TEXT, typreceive TEXT, typsend TEXT, typmodin TEXT, "
    "typmodout TEXT, typanalyze TEXT, typalign TEXT, typstorage TEXT, typnotnull BOOLEAN, typbasetype OID, "
    "typtypmod INT4, typndims INT4, typcollation OID, typdefaultbin TEXT, typdefault TEXT, typacl TEXT",
    "pg_index": "indexrelid OID, indrelid OID, indnatts INT2, indnkeyatts INT2, indisunique BOOLEAN, "
    "indnullsnotdistinct BOOLEAN, indisprimary BOOLEAN, indisexclusion BOOLEAN, indimmediate BOOLEAN, "
    "indisclustered BOOLEAN, indisvalid BOOLEAN, indcheckxmin BOOLEAN, indisready BOOLEAN, indislive BOOLEAN, "
    "indisreplident BOOLEAN, indkey INT2VECTOR, indcollation INT2VECTOR, indclass INT2VECTOR, indoption INT2VECTOR, "
    "indexprs TEXT, indpred TEXT",
    "pg_constraint": "oid OID, conname NAME, connamespace OID, contype TEXT, condeferrable BOOLEAN, "
    "condeferred BOOLEAN, convalidated BOOLEAN, conrelid OID, contypid OID, conindid OID, conparentid OID, "
    "confrelid OID, confupdtype TEXT, confdeltype TEXT, confmatchtype TEXT, conislocal BOOLEAN, coninhcount INT4, "
    'connoinherit BOOLEAN, conkey "INT2[]", confkey "INT2[]", conpfeqop TEXT, conppeqop TEXT, conffeqop TEXT, '
    "confdelsetcols TEXT, conexclop TEXT, conbin TEXT, consrc TEXT",
    "pg_trigger": "oid OID, tgrelid OID, tgparentid OID, tgname NAME, tgfoid OID, tgtype INT2, tgenabled TEXT, "
    "tgisinternal BOOLEAN, tgconstrrelid OID, tgconstrindid OID, tgconstraint OID, tgdeferrable BOOLEAN, "
    "tginitdeferred BOOLEAN, tgnargs INT2, tgattr TEXT, tgargs TEXT, tgqual TEXT, tgoldtable NAME, tgnewtable NAME",
    "pg_database": "oid OID, datname NAME, datdba OID, encoding INT4, datlocprovider TEXT, datistemplate BOOLEAN, "
    "datallowconn BOOLEAN, datconnlimit INT4, datfrozenxid INT4, dattablespace OID, datcollate TEXT, datctype TEXT, "
    "daticulocale TEXT, daticurules TEXT, datcollversion TEXT, datacl TEXT",
    "pg_roles": "rolname NAME, rolsuper BOOLEAN, rolinherit BOOLEAN, rolcreaterole BOOLEAN, rolcreatedb BOOLEAN, "
    "rolcanlogin BOOLEAN, rolreplication BOOLEAN, rolconnlimit INT4, rolpassword TEXT, rolvaliduntil TIMESTAMPTZ, "
    "rolbypassrls BOOLEAN, rolconfig TEXT, oid OID",
    "pg_user": "usename NAME, usesysid OID, usecreatedb BOOLEAN, usesuper BOOLEAN, userepl BOOLEAN, "
    "usebypassrls BOOLEAN, passwd TEXT, valuntil TIMESTAMPTZ, useconfig TEXT",
    "pg_am": "oid OID, amname NAME, amhandler TEXT, amtype TEXT",
    "pg_collation": "oid OID, collname NAME, collnamespace OID, collowner OID, collprovider TEXT, "
    "collisdeterministic BOOLEAN, collencoding INT4, collcollate TEXT, collctype TEXT, colliculocale TEXT",
    "pg_tables": "schemaname NAME, tablename NAME, tableowner NAME, tablespace NAME, hasindexes BOOLEAN, "
    "hasrules BOOLEAN, hastriggers BOOLEAN, rowsecurity BOOLEAN",
    "pg_views": "schemaname NAME, viewname NAME, viewowner NAME, definition TEXT",
    "pg_indexes": "schemaname NAME, tablename NAME, indexname NAME, tablespace NAME, indexdef TEXT",
    "pg_settings": "name TEXT, setting TEXT, unit TEXT, category TEXT, short_desc TEXT, extra_desc TEXT, "
    "context TEXT, vartype TEXT, source TEXT, min_val TEXT, max_val TEXT, enumvals TEXT, boot_val TEXT, "
    "reset_val TEXT, sourcefile TEXT, sourceline INT4, pending_restart BOOLEAN",
    "pg_description": "objoid OID, classoid OID, objsubid INT4, description TEXT",
    "pg_shdescription": "objoid OID, classoid OID, description TEXT",
    "pg_depend": "classid OID, objid OID, objsubid INT4, refclassid OID, refobjid OID, refobjsubid INT4, deptype TEXT",
    "pg_inherits": "inhrelid OID, inhparent OID, inhseqno INT4, inhdetachpending BOOLEAN",
    "pg_proc": "oid OID, proname NAME, pronamespace OID, proowner OID, prolang OID, prokind TEXT, prosecdef BOOLEAN, "
    "proleakproof BOOLEAN, proisstrict BOOLEAN, proretset BOOLEAN, provolatile TEXT, proparallel TEXT, pronargs INT2, "
    "pronargdefaults INT2, prorettype OID, proargtypes TEXT, proallargtypes TEXT, proargmodes TEXT, proargnames TEXT, "
    "prosrc TEXT, probin TEXT, proacl TEXT",
    "pg_enum": "oid OID, enumtypid OID, enumsortorder FLOAT4, enumlabel NAME",
    "pg_range": "rngtypid OID, rngsubtype OID, rngmultitypid OID, rngcollation OID, rngsubopc OID",
    "pg_sequence": "seqrelid OID, seqtypid OID, seqstart INT8, seqincrement INT8, seqmax INT8, seqmin INT8, "
    "seqcache INT8, seqcycle BOOLEAN",
    "pg_sequences": "schemaname NAME, sequencename NAME, sequenceowner NAME, data_type TEXT, start_value INT8, "
    "min_value INT8, max_value INT8, increment_by INT8, cycle BOOLEAN, cache_size INT8, last_value INT8",
    "pg_rewrite": "oid OID, rulename NAME, ev_class OID, ev_type TEXT, ev_enabled TEXT, is_instead BOOLEAN",
    "pg_policy": "oid OID, polname NAME, polrelid OID, polcmd TEXT, polpermissive BOOLEAN, polroles TEXT, "
    "polqual TEXT, polwithcheck TEXT",
    "pg_statistic_ext": "oid OID, stxrelid OID, stxname NAME, stxnamespace OID, stxowner OID, stxstattarget INT4, "
    "stxkeys TEXT, stxkind TEXT, stxexprs TEXT",
    "pg_publication": "oid OID, pubname NAME, pubowner OID, puballtables BOOLEAN",
    "pg_publication_rel": "oid OID, prpubid OID, prrelid OID, prqual TEXT, prattrs TEXT",
    "pg_publication_namespace": "oid OID, pnpubid OID, pnnspid OID",
    "pg_subscription": "oid OID, subdbid OID, subname NAME",
    "pg_tablespace": "oid OID, spcname NAME, spcowner OID, spcacl TEXT, spcoptions TEXT",
    "pg_language": "oid OID, lanname NAME, lanowner OID, lanispl BOOLEAN, lanpltrusted BOOLEAN",
    "pg_extension": "oid OID, extname NAME, extowner OID, extnamespace OID, extrelocatable BOOLEAN, extversion TEXT",
    "pg_foreign_table": "ftrelid OID, ftserver OID, ftoptions TEXT",
    "pg_foreign_server": "oid OID, srvname NAME, srvowner OID, srvfdw OID, srvtype TEXT, srvversion TEXT",
    "pg_foreign_data_wrapper": "oid OID, fdwname NAME, fdwowner OID",
    "pg_partitioned_table": "partrelid OID, partstrat TEXT, partnatts INT2, partdefid OID, partattrs TEXT",
    "pg_auth_members": "roleid OID, member OID, grantor OID, admin_option BOOLEAN",
    "pg_opclass": "oid OID, opcmethod OID, opcname NAME, opcnamespace OID, opcintype OID, opcdefault BOOLEAN",
    "pg_operator": "oid OID, oprname NAME, oprnamespace OID, oprkind TEXT",
    "pg_cast": "oid OID, castsource OID, casttarget OID, castfunc OID, castcontext TEXT",
    "pg_aggregate": "aggfnoid OID, aggkind TEXT",
    "pg_event_trigger": "oid OID, evtname NAME",
    "pg_db_role_setting": "setdatabase OID, setrole OID, setconfig TEXT",
    "pg_default_acl": "oid OID, defaclrole OID, defaclnamespace OID, defaclobjtype TEXT, defaclacl TEXT",
    "pg_init_privs": "objoid OID, classoid OID, objsubid INT4, privtype TEXT, initprivs TEXT",
    "pg_matviews": "schemaname NAME, matviewname NAME, matviewowner NAME, tablespace NAME, hasindexes BOOLEAN, "
    "ispopulated BOOLEAN, definition TEXT",
    "pg_locks": "locktype TEXT, database OID, relation OID, pid INT4, mode TEXT, granted BOOLEAN",
    "pg_stat_activity": "datid OID, datname NAME, pid INT4, usename NAME, application_name TEXT, "
    "state TEXT, query TEXT",
    "pg_stat_user_tables": "relid OID, schemaname NAME, relname NAME, seq_scan INT8, n_live_tup INT8, n_dead_tup INT8",
    "pg_timezone_names": "name TEXT, abbrev TEXT, utc_offset TEXT, is_dst BOOLEAN",
}  # fmt: skip
_INFORMATION: Final = {
    "schemata": "catalog_name NAME, schema_name NAME, schema_owner NAME",
    "tables": "table_catalog NAME, table_schema NAME, table_name NAME, table_type TEXT, "
    "self_referencing_column_name NAME, reference_generation TEXT, is_insertable_into TEXT, is_typed TEXT, "
    "commit_action TEXT",
    "columns": "table_catalog NAME, table_schema NAME, table_name NAME, column_name NAME, ordinal_position INT4, "
    "column_default TEXT, is_nullable TEXT, data_type TEXT, character_maximum_length INT4, "
    "character_octet_length INT4, "
    "numeric_precision INT4, numeric_precision_radix INT4, numeric_scale INT4, datetime_precision INT4, "
    "interval_type TEXT, collation_catalog NAME, collation_schema NAME, collation_name NAME, domain_name NAME, "
    "udt_catalog NAME, udt_schema NAME, udt_name NAME, is_identity TEXT, identity_generation TEXT, is_generated TEXT, "
    "generation_expression TEXT, is_updatable TEXT",
    "views": "table_catalog NAME, table_schema NAME, table_name NAME, view_definition TEXT, check_option TEXT, "
    "is_updatable TEXT, is_insertable_into TEXT",
    "table_constraints": "constraint_catalog NAME, constraint_schema NAME, constraint_name NAME, table_catalog NAME, "
    "table_schema NAME, table_name NAME, constraint_type TEXT, is_deferrable TEXT, initially_deferred TEXT, "
    "enforced TEXT",
    "key_column_usage": "constraint_catalog NAME, constraint_schema NAME, constraint_name NAME, table_catalog NAME, "
    "table_schema NAME, table_name NAME, column_name NAME, ordinal_position INT4, position_in_unique_constraint INT4",
    "constraint_column_usage": "table_catalog NAME, table_schema NAME, table_name NAME, column_name NAME, "
    "constraint_catalog NAME, constraint_schema NAME, constraint_name NAME",
    "referential_constraints": "constraint_catalog NAME, constraint_schema NAME, constraint_name NAME, "
    "unique_constraint_catalog NAME, unique_constraint_schema NAME, unique_constraint_name NAME, match_option TEXT, "
    "update_rule TEXT, delete_rule TEXT",
    "sequences": "sequence_catalog NAME, sequence_schema NAME, sequence_name NAME, data_type TEXT",
    "routines": "specific_catalog NAME, specific_schema NAME, specific_name NAME, routine_catalog NAME, "
    "routine_schema NAME, routine_name NAME, routine_type TEXT, data_type TEXT",
    "triggers": "trigger_catalog NAME, trigger_schema NAME, trigger_name NAME, event_object_table NAME, "
    "action_statement TEXT",
}
TABLES: Final[Mapping[str, str]] = {
    **{f"pg_catalog.{name}": columns for name, columns in _PG.items()},
    **{f"information_schema.{name}": columns for name, columns in _INFORMATION.items()},
}
"""Tables of the catalog -> their columns."""

_COLUMNS: Final = {
    name: tuple(column.strip().split(" ", 1) for column in columns.split(",")) for name, columns in TABLES.items()
}
_NUMBERS: Final = ("OID", "INT2", "INT4", "INT8", "BOOLEAN", "FLOAT4")

TYPES: Final = {
    v.BOOL: ("bool", "boolean", "B", 1000), v.BYTEA: ("bytea", "bytea", "U", 1001), v.CHAR: ("char", '"char"', "Z", 0),
    v.NAME: ("name", "name", "S", 1003), v.INT8: ("int8", "bigint", "N", 1016), v.INT2: ("int2", "smallint", "N", 1005),
    v.INT4: ("int4", "integer", "N", 1007), v.TEXT: ("text", "text", "S", 1009), v.OID: ("oid", "oid", "N", 1028),
    v.JSON: ("json", "json", "U", 0), v.FLOAT4: ("float4", "real", "N", 1021),
    v.FLOAT8: ("float8", "double precision", "N", 1022), v.BPCHAR: ("bpchar", "character", "S", 1014),
    v.VARCHAR: ("varchar", "character varying", "S", 1015), v.DATE: ("date", "date", "D", 1182),
    v.TIME: ("time", "time without time zone", "D", 0),
    v.TIMESTAMP: ("timestamp", "timestamp without time zone", "D", 1115),
    v.TIMESTAMPTZ: ("timestamptz", "timestamp with time zone", "D", 1185),
    v.NUMERIC: ("numeric", "numeric", "N", 1231), v.UUID_TYPE: ("uuid", "uuid", "U", 2951),
    v.JSONB: ("jsonb", "jsonb", "U", 0), v.UNKNOWN: ("unknown", "unknown", "X", 0), v.VOID: ("void", "void", "P", 0),
}  # fmt: skip
"""Types -> name, name in words, category, type of arrays of it."""
_RULES: Final = {"NO ACTION": "a", "RESTRICT": "r", "CASCADE": "c", "SET NULL": "n", "SET DEFAULT": "d"}


class PgCatalogNames:
    """Numbers of things by name: the same on each replica."""

    def __init__(self) -> None:
        self._taken: dict[int, tuple[str, ...]] = {}
        self._known: dict[tuple[str, ...], int] = {}

    def of(self, *name: str) -> int:
        """Return the number of a thing of this name."""
        found = self._known.get(name)
        if found is None:
            found = 20_000 + zlib.crc32("\0".join(name).encode()) % 2_000_000_000
            while found in self._taken:
                found += 1
            self._taken[found], self._known[name] = name, found
        return found


class PgCatalogRows(NamedTuple):
    """Rows of the catalog, and what its functions say.

    Attributes:
        rows: "schema.table" -> rows.
        names: Numbers of tables, views and indexes -> names.
        index_texts: Numbers of indexes -> SQL and columns.
        constraint_texts: Numbers of constraints -> SQL.
        view_texts: Numbers of views -> SQL.
        trigger_texts: Numbers of triggers -> SQL.

    """

    rows: dict[str, list[tuple[Any, ...]]]
    names: dict[int, str]
    index_texts: dict[int, tuple[str, tuple[str, ...]]]
    constraint_texts: dict[int, str]
    view_texts: dict[int, str]
    trigger_texts: dict[int, str]


def type_of(column: CatalogColumn) -> int:
    """Return the type of a column, as clients are told it."""
    return v.declared_type(column.kind) or v.TEXT


def quoted_name(name: str) -> str:
    """Return a name as SQL has it."""
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def catalog_rows(tables: Sequence[CatalogTable], database: str, settings: Mapping[str, str]) -> PgCatalogRows:
    """Return the rows of the catalog of some tables.

    Args:
        tables: As `catalog_of` tells of them.
        database: Name of the log.
        settings: Of a session.

    """
    made = _Catalog(database, {table.name: tuple(column.name for column in table.columns) for table in tables})
    made.fixed(settings)
    for table in tables:
        made.table(table)
    return PgCatalogRows(
        made.rows, made.names, made.index_texts, made.constraint_texts, made.view_texts, made.trigger_texts
    )


class _Catalog:
    """Rows as they are made."""

    def __init__(self, database: str, columns_of: Mapping[str, tuple[str, ...]]) -> None:
        self.database = database
        self._columns_of = columns_of
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self.names: dict[int, str] = {}
        self.index_texts: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.constraint_texts: dict[int, str] = {}
        self.view_texts: dict[int, str] = {}
        self.trigger_texts: dict[int, str] = {}
        self._oids = PgCatalogNames()

    def add(self, table: str, **values: Any) -> None:
        name = table if "." in table else f"pg_catalog.{table}"
        self.rows[name].append(
            tuple(values.get(column, 0 if kind in _NUMBERS else None) for column, kind in _COLUMNS[name])
        )

    def fixed(self, settings: Mapping[str, str]) -> None:
        for oid, name in ((CATALOG_OID, "pg_catalog"), (PUBLIC_OID, "public"), (INFORMATION_OID, "information_schema")):
            self.add("pg_namespace", oid=oid, nspname=name, nspowner=OWNER_OID)
            self.add("information_schema.schemata", catalog_name=self.database, schema_name=name, schema_owner="rsm")
        for oid, (name, _, category, array) in TYPES.items():
            size = v.PgColumn("", oid).size
            self.add(
                "pg_type", oid=oid, typname=name, typnamespace=CATALOG_OID, typowner=OWNER_OID, typlen=size,
                typtype="b", typcategory=category, typisdefined=1, typdelim=",", typarray=array, typinput=f"{name}in",
                typoutput=f"{name}out", typreceive=f"{name}recv", typsend=f"{name}send", typtypmod=-1, typalign="i",
                typstorage="p" if size > 0 else "x",
                typcollation=_COLLATION if category == "S" else 0,
            )  # fmt: skip
            if array:
                self.add(
                    "pg_type", oid=array, typname=f"_{name}", typnamespace=CATALOG_OID, typowner=OWNER_OID, typlen=-1,
                    typtype="b", typcategory="A", typisdefined=1, typdelim=",", typelem=oid, typinput="array_in",
                    typoutput="array_out", typreceive="array_recv", typsend="array_send", typtypmod=-1, typalign="i",
                    typstorage="x",
                )  # fmt: skip
        self.add(
            "pg_database", oid=DATABASE_OID, datname=self.database, datdba=OWNER_OID, encoding=6, datlocprovider="c",
            datallowconn=1, datconnlimit=-1, datcollate="C", datctype="C",
        )  # fmt: skip
        self.add("pg_roles", rolname="rsm", rolinherit=1, rolcanlogin=1, rolconnlimit=-1, oid=OWNER_OID)
        self.add("pg_user", usename="rsm", usesysid=OWNER_OID)
        self.add("pg_am", oid=_HEAP, amname="heap", amhandler="heap_tableam_handler", amtype="t")
        self.add("pg_am", oid=_BTREE, amname="btree", amhandler="bthandler", amtype="i")
        self.add(
            "pg_collation", oid=_COLLATION, collname="default", collnamespace=CATALOG_OID, collowner=OWNER_OID,
            collprovider="d", collisdeterministic=1, collencoding=-1,
        )  # fmt: skip
        self.add("pg_tablespace", oid=1663, spcname="pg_default", spcowner=OWNER_OID)
        for name, value in sorted(settings.items()):
            self.add(
                "pg_settings", name=name, setting=value, category="", short_desc="", context="user", vartype="string",
                source="default", boot_val=value, reset_val=value,
            )  # fmt: skip

    # ---- a table or a view

    def table(self, table: CatalogTable) -> None:
        oid = self._oids.of("class", table.name)
        self._class(
            oid, table.name, "v" if table.is_view else "r", relnatts=len(table.columns),
            relhasindex=int(bool(table.indexes)), relhastriggers=int(not table.is_view),
            relam=0 if table.is_view else _HEAP,
        )  # fmt: skip
        numbers = {column.name: place for place, column in enumerate(table.columns, 1)}
        for number, column in enumerate(table.columns, 1):
            self._column(table, oid, number, column)
        common = {"table_catalog": self.database, "table_schema": "public", "table_name": table.name}
        if table.is_view:
            self.view_texts[oid] = table.sql
            self.add("pg_views", schemaname="public", viewname=table.name, viewowner="rsm", definition=table.sql)
            self.add("information_schema.views", **common, view_definition=table.sql, check_option="NONE",
                     is_updatable="NO", is_insertable_into="NO")  # fmt: skip
        else:
            self.add(
                "pg_tables", schemaname="public", tablename=table.name, tableowner="rsm",
                hasindexes=int(bool(table.indexes)), hastriggers=int(bool(table.triggers)),
            )  # fmt: skip
        self.add(
            "information_schema.tables", **common, table_type="VIEW" if table.is_view else "BASE TABLE",
            is_insertable_into="NO" if table.is_view else "YES", is_typed="NO",
        )  # fmt: skip
        for index in table.indexes:
            self._index(table, oid, index, numbers)
        for reference in table.references:
            self._reference(table, oid, reference, numbers)
        for name, sql in table.triggers:
            number = self._oids.of("trigger", name)
            self.trigger_texts[number] = sql
            self.add("pg_trigger", oid=number, tgrelid=oid, tgname=name, tgenabled="O", tgtype=5)
            self.add("information_schema.triggers", trigger_catalog=self.database, trigger_schema="public",
                     trigger_name=name, event_object_table=table.name, action_statement=sql)  # fmt: skip

    def _class(self, oid: int, name: str, kind: str, **more: Any) -> None:
        self.names[oid] = name
        self.add(
            "pg_class", oid=oid, relname=name, relnamespace=PUBLIC_OID, relowner=OWNER_OID, relfilenode=oid,
            reltuples=-1, relpersistence="p", relkind=kind, relispopulated=1, relreplident="d", tableoid=_CLASS, **more,
        )  # fmt: skip

    def _column(self, table: CatalogTable, oid: int, number: int, column: CatalogColumn) -> None:
        kind = type_of(column)
        default = column.default
        if table.is_numbered and column.name == table.key[0]:
            default = f"nextval('{table.name}_{column.name}_seq'::regclass)"
        modifier = _modifier(column.kind, kind)
        is_text = kind in (v.TEXT, v.VARCHAR, v.BPCHAR, v.NAME)
        self.add(
            "pg_attribute", attrelid=oid, attname=column.name, atttypid=kind, attstattarget=-1,
            attlen=v.PgColumn("", kind).size, attnum=number, atttypmod=modifier, attalign="i", attstorage="p",
            attcompression="", attnotnull=int(column.is_required), atthasdef=int(default is not None), attidentity="",
            attgenerated="s" if column.is_generated else "", attislocal=1, attcollation=_COLLATION if is_text else 0,
        )  # fmt: skip
        if default is not None:
            self.add(
                "pg_attrdef", oid=self._oids.of("default", table.name, column.name), adrelid=oid, adnum=number,
                adbin=default, adsrc=default,
            )  # fmt: skip
        name, words, _, _ = TYPES[kind]
        self.add(
            "information_schema.columns", table_catalog=self.database, table_schema="public", table_name=table.name,
            column_name=column.name, ordinal_position=number, column_default=default,
            is_nullable="NO" if column.is_required else "YES", data_type=words,
            character_maximum_length=modifier - 4 if modifier > 0 and is_text else None,
            numeric_precision=_precision(kind, modifier), numeric_precision_radix=None, datetime_precision=None,
            numeric_scale=((modifier - 4) & 0xFFFF) if kind == v.NUMERIC and modifier > 0 else None,
            udt_catalog=self.database, udt_schema="pg_catalog", udt_name=name, is_identity="NO",
            is_generated="ALWAYS" if column.is_generated else "NEVER", is_updatable="NO" if table.is_view else "YES",
        )  # fmt: skip

    def _index(self, table: CatalogTable, oid: int, index: CatalogIndex, numbers: Mapping[str, int]) -> None:
        own = self._oids.of("class", index.name)
        self._class(own, index.name, "i", relnatts=len(index.columns), relam=_BTREE)
        places = [numbers.get(name, 0) for name in index.columns]
        unique = "UNIQUE " if index.is_unique else ""
        listed = ", ".join(map(quoted_name, index.columns))
        text = (
            f"CREATE {unique}INDEX {quoted_name(index.name)} ON public.{quoted_name(table.name)} USING btree ({listed})"
        )
        self.index_texts[own] = (text, index.columns)
        self.add(
            "pg_index", indexrelid=own, indrelid=oid, indnatts=len(places), indnkeyatts=len(places),
            indisunique=int(index.is_unique), indisprimary=int(index.origin == "pk"), indimmediate=1, indisvalid=1,
            indisready=1, indislive=1, indkey=json.dumps(places), indcollation=json.dumps([0] * len(places)),
            indclass=json.dumps([0] * len(places)), indoption=json.dumps([0] * len(places)),
            indpred="true" if " WHERE " in index.sql.upper() else None,
            indexprs="(expression)" if 0 in places else None,
        )  # fmt: skip
        self.add(
            "pg_indexes", schemaname="public", tablename=table.name, indexname=index.name, indexdef=index.sql or text
        )
        for number, column in enumerate(index.columns, 1):
            self.add("pg_attribute", attrelid=own, attname=column or f"expr{number}", attnum=number, atttypmod=-1,
                     atttypid=v.TEXT, attlen=-1, attidentity="", attgenerated="", attislocal=1)  # fmt: skip
        if index.origin != "c":
            is_key = index.origin == "pk"
            words = "PRIMARY KEY" if is_key else "UNIQUE"
            self._constraint(table, oid, index.name, words, f"{words} ({listed})", index.columns, numbers, conindid=own)

    def _constraint(
        self,
        table: CatalogTable,
        oid: int,
        name: str,
        words: str,
        text: str,
        columns: Sequence[str],
        numbers: Mapping[str, int],
        **more: Any,
    ) -> None:
        own = self._oids.of("constraint", table.name, name)
        self.constraint_texts[own] = text
        self.add(
            "pg_constraint", oid=own, conname=name, connamespace=PUBLIC_OID, conrelid=oid, contype=words[0].lower(),
            convalidated=1, conislocal=1, conkey=json.dumps([numbers.get(column, 0) for column in columns]), **more,
        )  # fmt: skip
        self.add("pg_depend", classid=_CONSTRAINT, objid=own, refclassid=_CLASS, refobjid=oid, deptype="a")
        common = {
            "constraint_catalog": self.database, "constraint_schema": "public", "constraint_name": name,
            "table_catalog": self.database, "table_schema": "public", "table_name": table.name,
        }  # fmt: skip
        self.add("information_schema.table_constraints", **common, constraint_type=words, is_deferrable="NO",
                 initially_deferred="NO", enforced="YES")  # fmt: skip
        for place, column in enumerate(columns, 1):
            self.add(
                "information_schema.key_column_usage", **common, column_name=column, ordinal_position=place,
                position_in_unique_constraint=place if words == "FOREIGN KEY" else None,
            )  # fmt: skip
            if words != "FOREIGN KEY":
                self.add("information_schema.constraint_column_usage", **common, column_name=column)

    def _reference(self, table: CatalogTable, oid: int, one: CatalogForeignKey, numbers: Mapping[str, int]) -> None:
        listed, others = (", ".join(map(quoted_name, names)) for names in (one.columns, one.others))
        text = f"FOREIGN KEY ({listed}) REFERENCES {quoted_name(one.table)}({others})"
        for words, rule in (("UPDATE", one.on_update), ("DELETE", one.on_delete)):
            text += f" ON {words} {rule}" if rule != "NO ACTION" else ""
        self._constraint(
            table, oid, one.name, "FOREIGN KEY", text, one.columns, numbers,
            confrelid=self._oids.of("class", one.table), confupdtype=_RULES[one.on_update],
            confdeltype=_RULES[one.on_delete], confmatchtype="s",
            confkey=json.dumps(list(self._places(one))), conindid=self._oids.of("class", f"{one.table}_pkey"),
        )  # fmt: skip
        self.add(
            "information_schema.referential_constraints", constraint_catalog=self.database, constraint_schema="public",
            constraint_name=one.name, unique_constraint_catalog=self.database, unique_constraint_schema="public",
            unique_constraint_name=f"{one.table}_pkey", match_option="NONE", update_rule=one.on_update,
            delete_rule=one.on_delete,
        )  # fmt: skip
        for column in one.others:
            self.add(
                "information_schema.constraint_column_usage", table_catalog=self.database, table_schema="public",
                table_name=one.table, column_name=column, constraint_catalog=self.database, constraint_schema="public",
                constraint_name=one.name,
            )  # fmt: skip

    def _places(self, one: CatalogForeignKey) -> Iterator[int]:
        """Iterate over the numbers of the columns that a reference names."""
        columns = self._columns_of.get(one.table, ())
        yield from (columns.index(name) + 1 if name in columns else 0 for name in one.others)


def _modifier(declared: str, kind: int) -> int:
    """Return PostgreSQL's type modifier of a declared type: its length, or digits."""
    inside = declared.partition("(")[2].partition(")")[0]
    numbers = [int(part) for part in inside.split(",") if part.strip().isdigit()]
    if not numbers:
        return -1
    if kind in (v.VARCHAR, v.BPCHAR):
        return numbers[0] + 4
    if kind == v.NUMERIC:
        return ((numbers[0] << 16) | (numbers[1] if len(numbers) > 1 else 0)) + 4
    return -1


def _precision(kind: int, modifier: int) -> int | None:
    if kind == v.NUMERIC:
        return (modifier - 4) >> 16 if modifier > 0 else None
    return {v.INT8: 64, v.INT4: 32, v.INT2: 16, v.FLOAT8: 53, v.FLOAT4: 24}.get(kind)
