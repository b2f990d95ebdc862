import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;

/** pgjdbc on SQL tables: metadata, statements, batches, transactions, rows a few at a time. */
public class Pgjdbc {
  private static String told(ResultSet rows, String... columns) throws SQLException {
    StringBuilder said = new StringBuilder();
    try (rows) {
      while (rows.next()) {
        for (String column : columns) {
          said.append(rows.getString(column)).append(' ');
        }
        said.append("; ");
      }
    }
    return said.toString().trim();
  }

  private static void expect(Object found, Object wanted) {
    if (!wanted.equals(found)) {
      throw new AssertionError("expected " + wanted + ", found " + found);
    }
  }

  private static void metadata(Connection shop) throws SQLException {
    DatabaseMetaData tells = shop.getMetaData();
    expect(tells.getDatabaseProductName(), "PostgreSQL");
    expect(told(tells.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"}), "TABLE_NAME", "TABLE_TYPE"),
        "item TABLE ; sale TABLE ; cheap VIEW ;");
    expect(told(tells.getColumns(null, "public", "item", "%"), "COLUMN_NAME", "TYPE_NAME", "NULLABLE", "IS_AUTOINCREMENT"),
        "id bigserial 0 YES ; name varchar 0 NO ; price numeric 1 NO ; at timestamptz 1 NO ;");
    expect(told(tells.getPrimaryKeys(null, "public", "sale"), "COLUMN_NAME", "KEY_SEQ"), "a 1 ; b 2 ;");
    expect(told(tells.getIndexInfo(null, "public", "sale", false, false), "INDEX_NAME", "COLUMN_NAME"),
        "sale_pkey a ; sale_pkey b ; sale_note note ; sale_note item ;");
    expect(told(tells.getImportedKeys(null, "public", "sale"), "PKTABLE_NAME", "PKCOLUMN_NAME", "FKCOLUMN_NAME", "DELETE_RULE"),
        "item id item 0 ;");
    expect(told(tells.getExportedKeys(null, "public", "item"), "FKTABLE_NAME", "FKCOLUMN_NAME"), "sale item ;");
    expect(told(tells.getSchemas(), "TABLE_SCHEM"), "information_schema ; pg_catalog ; public ;");
  }

  public static void main(String[] arguments) throws SQLException {
    try (Connection shop = DriverManager.getConnection(arguments[0], "ann", ""); Statement plain = shop.createStatement()) {
      plain.execute("CREATE TABLE item (id SERIAL PRIMARY KEY, name VARCHAR(40) NOT NULL UNIQUE,"
          + " price NUMERIC(10,2), at TIMESTAMPTZ DEFAULT now())");
      plain.execute("CREATE TABLE sale (a INT, b BIGINT, item INT REFERENCES item(id) ON DELETE CASCADE, note TEXT,"
          + " ok BOOLEAN, PRIMARY KEY (a, b))");
      plain.execute("CREATE INDEX sale_note ON sale (note, item)");
      plain.execute("CREATE VIEW cheap AS SELECT id, name FROM item WHERE price < 2");
      metadata(shop);
      String insert = "INSERT INTO item (name, price, at) VALUES (?, ?, ?)";
      try (PreparedStatement made = shop.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
        made.setString(1, "pen");
        made.setBigDecimal(2, new BigDecimal("2.50"));
        made.setTimestamp(3, Timestamp.valueOf("2026-01-02 03:04:05"));
        expect(made.executeUpdate(), 1);
        expect(told(made.getGeneratedKeys(), "id"), "1 ;");
      }
      String upsert = "INSERT INTO sale (a, b, note, ok) VALUES (?, ?, ?, ?)"
          + " ON CONFLICT (a, b) DO UPDATE SET note = excluded.note";
      try (PreparedStatement many = shop.prepareStatement(upsert)) {
        for (int number = 0; number < 1000; number++) {
          many.setInt(1, number);
          many.setLong(2, number);
          many.setString(3, "n" + number);
          many.setBoolean(4, number % 2 == 0);
          many.addBatch();
        }
        expect(many.executeBatch().length, 1000);
      }
      try (PreparedStatement asked = shop.prepareStatement("SELECT a, note, ok FROM sale WHERE a < ? ORDER BY a")) {
        for (int again = 0; again < 8; again++) {  // From the fifth time on it is prepared by name, and rows are binary.
          asked.setInt(1, 2);
          try (ResultSet rows = asked.executeQuery()) {
            rows.next();
            expect(rows.getInt("a") + rows.getString("note") + rows.getBoolean("ok"), "0n0true");
            rows.next();
            expect(rows.getInt("a") + rows.getString("note") + rows.getBoolean("ok"), "1n1false");
          }
        }
      }
      shop.setAutoCommit(false);
      try (PreparedStatement few = shop.prepareStatement("SELECT a FROM sale ORDER BY a")) {
        few.setFetchSize(100);
        int count = 0;
        try (ResultSet rows = few.executeQuery()) {
          while (rows.next()) {
            expect(rows.getInt(1), count++);
          }
        }
        expect(count, 1000);
      }
      shop.rollback();
      plain.executeUpdate("UPDATE item SET price = 1 WHERE id = 1");
      shop.rollback();
      plain.executeUpdate("UPDATE sale SET note = 'kept' WHERE a = 0");
      shop.commit();
      try {
        plain.executeUpdate("INSERT INTO item (id, name) VALUES (1, 'x')");
        throw new AssertionError("a number was given twice");
      } catch (SQLException failed) {
        expect(failed.getSQLState(), "23505");
        shop.rollback();
      }
      expect(told(plain.executeQuery("SELECT price, (SELECT note FROM sale WHERE a = 0) AS note FROM item"), "price", "note"),
          "2.5 kept ;");
    }
    System.out.println("well");
  }
}
