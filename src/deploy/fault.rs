//! What can go wrong on the way to a target, and whom it concerns: one zone, or the whole cluster.

use sqlx::error::DatabaseError;

/// Why nothing was deployed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeployError {
    /// The control database does not answer: nothing can be said of the target.
    #[error("the control database does not answer: {0}")]
    Control(String),
    /// The target's database cannot be used at all.
    #[error("the database of the DNS cluster cannot be used: {0}")]
    Unreachable(String),
    /// The cluster was disabled while this was on its way.
    #[error("the DNS cluster is disabled")]
    Disabled,
    /// The target refuses what was to be written; another try gives the same.
    #[error("the DNS cluster's database refuses the zone: {0}")]
    Refused(String),
    /// The target did not do it this time.
    #[error("the DNS cluster's database failed: {0}")]
    Failed(String),
}

impl DeployError {
    /// An error of the control database.
    pub fn control(error: impl std::fmt::Display) -> Self {
        Self::Control(error.to_string())
    }

    /// An error of the target's database, by what it concerns.
    pub fn target(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(refusal) => Self::refusal(refusal.as_ref()),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::Failed(error.to_string()),
            _ => Self::Unreachable(error.to_string()),
        }
    }

    fn refusal(refusal: &dyn DatabaseError) -> Self {
        let code = refusal.code().unwrap_or_default().into_owned();
        let text = format!("{} (SQLSTATE {code})", refusal.message());
        // Data exceptions and violated constraints come from what is written. Classes 08, 28, 3D, 53, 57, 58 concern
        // the connection or the server as a whole.
        match code.get(..2).unwrap_or_default() {
            "22" | "23" => Self::Refused(text),
            "08" | "28" | "3D" | "53" | "57" | "58" => Self::Unreachable(text),
            _ => Self::Failed(text),
        }
    }

    /// Whether every other zone would meet it, too.
    pub fn concerns_all(&self) -> bool {
        matches!(self, Self::Control(_) | Self::Unreachable(_) | Self::Disabled)
    }
}
