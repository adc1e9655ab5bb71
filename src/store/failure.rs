//! What a failed append means: whether another try may work, or the batch itself is at fault.

use super::append::AppendError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The connection or the server: another try may work.
    Passing,
    /// The batch itself.
    Lasting,
}

/// SQLSTATE classes 08 (connection), 40 (rollback), 53 (resources), 55 (not in
/// the right state: a lock was not to be had), 57 (the operator stepped in) and
/// 58 (system) pass; the rest lies in the batch.
pub(super) fn failure(error: &AppendError) -> Failure {
    match error {
        AppendError::Database(sqlx::Error::Database(error)) => {
            match error.code().as_deref().map(|code| &code[..2]) {
                Some("08" | "40" | "53" | "55" | "57" | "58") => Failure::Passing,
                _ => Failure::Lasting,
            }
        }
        AppendError::Database(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Encode(_))
        | AppendError::Answer(_) => Failure::Lasting,
        AppendError::Database(_) => Failure::Passing,
    }
}

/// SQLSTATE 55P03: the lock was not to be had within the connection's `lock_timeout`.
pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "55P03")
}
