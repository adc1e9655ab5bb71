//! The statements of the demo's own set-up: roles, databases and grants of the servers it starts.
//!
//! They run once a server is up, as its superuser, whom only the account of PostgreSQL can become. Passwords are
//! lower-case hex and names are constants of this crate, so nothing here needs quoting.

use sqlx::migrate::Migrator;

use super::postgres::DatabaseName;
use crate::secret::Secret;

/// The schema of a PowerDNS database, forward only.
pub static PDNS_MIGRATIONS: Migrator = sqlx::migrate!("migrations/pdns");

/// Makes the owner role, or gives it this password if it is there, and a database that it owns. Read by psql.
pub(super) fn owner_and_database(password: &Secret, database: DatabaseName) -> Secret {
    let (password, name) = (password.expose(), database.as_str());
    Secret::new(format!(
        "SELECT 'CREATE ROLE headwater LOGIN CREATEDB'
          WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'headwater') \\gexec
         ALTER ROLE headwater PASSWORD '{password}';
         SELECT 'CREATE DATABASE {name} OWNER headwater'
          WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{name}') \\gexec
         REVOKE ALL ON DATABASE {name} FROM PUBLIC;\n"
    ))
}

/// Makes the role PowerDNS connects as: it reads, and could not write even with a grant. Read by psql.
pub(super) fn pdns_reader_role(password: &Secret) -> Secret {
    Secret::new(format!(
        "SELECT 'CREATE ROLE pdns_ro LOGIN CONNECTION LIMIT 64'
          WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pdns_ro') \\gexec
         ALTER ROLE pdns_ro PASSWORD '{}';
         ALTER ROLE pdns_ro SET default_transaction_read_only = on;
         GRANT CONNECT ON DATABASE pdns TO pdns_ro;\n",
        password.expose()
    ))
}

/// What PowerDNS may read: its own tables, and none of ours beside them.
pub(super) const GRANT_PDNS_READER: &str = "
    GRANT USAGE ON SCHEMA public TO pdns_ro;
    GRANT SELECT ON domains, records, supermasters, comments, domainmetadata, cryptokeys, tsigkeys TO pdns_ro;
";
