//! Tenants, users, their memberships and tokens.

use headwater_events::actor::Role;
use headwater_events::domain::destination::Network;
use headwater_events::event::Labels;
use headwater_events::ids::{DomainId, Position, Revision, RightsNumber, TenantId, TokenId, UserId};
use headwater_events::manager::{Managing, View};
use headwater_events::scope::Scope;
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::types::Json;
use std::collections::BTreeMap;
use uuid::Uuid;

use super::{at, maybe_at, odd, sql, tenants};
use crate::people::session::SessionId;

/// Who holds a token or a session, with the rights of now.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The token, if it is one.
    pub token: Option<TokenId>,
    /// The session, if it is one.
    pub session: Option<SessionId>,
    /// Whose it is.
    pub user: UserId,
    /// Administrator of the platform.
    pub admin: bool,
    /// Whether the user may come in.
    pub enabled: bool,
    /// When it stops working by itself.
    pub expires_at: Option<Timestamp>,
    /// When it was used last, to the minute.
    pub used_at: Timestamp,
    /// After how many days without use it stops working.
    pub max_unused_days: Option<u32>,
    /// The networks from which it works; none: all.
    pub networks: Vec<Network>,
    /// What is stored of its secret.
    pub stored: Vec<u8>,
    /// The tenants the user is a member of.
    pub tenants: BTreeMap<TenantId, Role>,
    /// The single domains the user is a member of.
    pub domains: BTreeMap<DomainId, Role>,
    /// What the token is limited to.
    pub scopes: Option<Vec<Scope>>,
    /// Whose tool the token belongs to.
    pub managing: Managing,
    /// The number that its rights have.
    pub rights: RightsNumber,
}

/// A user.
#[derive(Debug, Clone)]
pub struct StoredUser {
    /// Its id.
    pub id: UserId,
    /// Its mail address; none when it was erased.
    pub email: Option<String>,
    /// Administrator of the platform.
    pub admin: bool,
    /// Its stream's newest revision.
    pub revision: Revision,
    /// When it was made.
    pub created_at: Timestamp,
    /// The tenants it is a member of.
    pub tenants: Vec<TenantId>,
    /// Its name, if it says one.
    pub name: Option<String>,
    /// Whether it may come in.
    pub enabled: bool,
}

/// A token, without what its holder must show.
#[derive(Debug, Clone)]
pub struct StoredToken {
    /// Its id.
    pub id: TokenId,
    /// Whose it is.
    pub user: UserId,
    /// What its owner calls it.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working by itself.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// What it is limited to.
    pub scopes: Option<Vec<Scope>>,
    /// After how many days without use it stops working.
    pub max_unused_days: Option<u32>,
    /// The networks from which it works; none: all.
    pub networks: Vec<Network>,
    /// When it was used last, to the minute.
    pub used_at: Option<Timestamp>,
    /// Whose tool it belongs to.
    pub managing: Managing,
}

/// A member of a tenant, or of a single domain.
#[derive(Debug, Clone)]
pub struct StoredMember {
    /// Who.
    pub user: UserId,
    /// Its mail address; none when it was erased.
    pub email: Option<String>,
    /// What it may do there.
    pub role: Role,
}

/// A tenant.
#[derive(Debug, Clone)]
pub struct StoredTenant {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// The operator's own number for it.
    pub external_id: Option<String>,
    /// Its stream's newest revision when it was made.
    pub revision: Revision,
    /// Domains it owns.
    pub domains: i64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Which tenants are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct TenantFilter<'a> {
    /// This one.
    pub id: Option<TenantId>,
    /// The one of this name.
    pub name: Option<&'a str>,
    /// Those of these only.
    pub scope: Option<&'a [TenantId]>,
}

/// Which tokens are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenFilter {
    /// This one.
    pub id: Option<TokenId>,
    /// Those of this user.
    pub user: Option<UserId>,
}

/// The holder of a token or a session that is there: whether it works now is asked of it. Takes everything that may be
/// stored of what was shown.
///
/// # Errors
/// When the database does not answer.
pub async fn holder(
    pool: &PgPool,
    tokens: &[[u8; 32]],
    sessions: &[[u8; 32]],
) -> Result<Option<Holder>, sqlx::Error> {
    let columns = |all: &[[u8; 32]]| all.iter().map(|one| one.to_vec()).collect::<Vec<_>>();
    let row =
        sqlx::query(sql::HOLDER).bind(columns(tokens)).bind(columns(sessions)).fetch_optional(pool).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Holder {
        token: row.try_get::<Option<Uuid>, _>(0)?.map(TokenId::from_uuid),
        session: row.try_get::<Option<Uuid>, _>(5)?.map(SessionId),
        user: UserId::from_uuid(row.try_get(1)?),
        admin: row.try_get(2)?,
        enabled: row.try_get(10)?,
        expires_at: maybe_at(&row, 3)?,
        used_at: at(&row, 8)?,
        max_unused_days: days(&row, 9)?,
        networks: networks(&row, 7)?,
        stored: row.try_get(6)?,
        tenants: row.try_get::<Json<_>, _>(4)?.0,
        domains: row.try_get::<Json<_>, _>(11)?.0,
        scopes: scopes(&row, 12)?,
        managing: managing(&row, 13)?,
        rights: RightsNumber::new(row.try_get(15)?),
    }))
}

/// As for [`scopes`]: a manager, and its view.
fn managing(row: &PgRow, first: usize) -> Result<Managing, sqlx::Error> {
    let manager: Option<&str> = row.try_get(first)?;
    Ok(Managing {
        manager: manager.map(str::parse).transpose().map_err(|_| odd("manager"))?,
        view: View::from_name(row.try_get(first + 1)?).ok_or_else(|| odd("view"))?,
    })
}

fn days(row: &PgRow, index: usize) -> Result<Option<u32>, sqlx::Error> {
    Ok(row.try_get::<Option<i32>, _>(index)?.and_then(|days| u32::try_from(days).ok()))
}

/// What cannot be read is an error: a limit is never lost.
fn scopes(row: &PgRow, index: usize) -> Result<Option<Vec<Scope>>, sqlx::Error> {
    Ok(row.try_get::<Option<Json<_>>, _>(index)?.map(|Json(scopes)| scopes))
}

/// As for [`scopes`].
fn networks(row: &PgRow, index: usize) -> Result<Vec<Network>, sqlx::Error> {
    let texts: Vec<String> = row.try_get(index)?;
    texts.iter().map(|text| text.parse().map_err(|_| odd("networks"))).collect()
}

/// Whether anything about tenants or users happened between two positions.
///
/// # Errors
/// When the database does not answer.
pub async fn identity_moved(pool: &PgPool, after: Position, up_to: Position) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(sql::IDENTITY_MOVED).bind(after.get()).bind(up_to.get()).fetch_one(pool).await
}

fn user_row(row: &PgRow) -> Result<StoredUser, sqlx::Error> {
    let tenants: Vec<Uuid> = row.try_get(5)?;
    Ok(StoredUser {
        id: UserId::from_uuid(row.try_get(0)?),
        email: row.try_get(1)?,
        admin: row.try_get(2)?,
        revision: Revision::new(row.try_get(3)?),
        created_at: at(row, 4)?,
        tenants: tenants.into_iter().map(TenantId::from_uuid).collect(),
        name: row.try_get(6)?,
        enabled: row.try_get(7)?,
    })
}

/// One user.
///
/// # Errors
/// When the database does not answer.
pub async fn user(pool: &PgPool, id: UserId) -> Result<Option<StoredUser>, sqlx::Error> {
    let row = sqlx::query(sql::USER).bind(id.as_uuid()).fetch_optional(pool).await?;
    row.as_ref().map(user_row).transpose()
}

/// The user with this (canonical) mail address.
///
/// # Errors
/// When the database does not answer.
pub async fn user_by_email(pool: &PgPool, email: &str) -> Result<Option<StoredUser>, sqlx::Error> {
    let row = sqlx::query(sql::USER_BY_EMAIL).bind(email).fetch_optional(pool).await?;
    row.as_ref().map(user_row).transpose()
}

/// The next users, oldest first.
///
/// # Errors
/// When the database does not answer.
pub async fn users(pool: &PgPool, after: Option<Uuid>, most: i64) -> Result<Vec<StoredUser>, sqlx::Error> {
    let rows = sqlx::query(sql::USERS).bind(after).bind(most).fetch_all(pool).await?;
    rows.iter().map(user_row).collect()
}

/// How many administrators can show a token.
///
/// # Errors
/// When the database does not answer.
pub async fn administrators(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(sql::ADMINISTRATORS).fetch_one(pool).await
}

/// The next tokens, oldest first.
///
/// # Errors
/// When the database does not answer.
pub async fn tokens(
    pool: &PgPool,
    filter: TokenFilter,
    after: Option<Uuid>,
    most: i64,
) -> Result<Vec<StoredToken>, sqlx::Error> {
    let query = sqlx::query(sql::TOKENS).bind(filter.id.map(TokenId::as_uuid));
    let query = query.bind(filter.user.map(UserId::as_uuid)).bind(after).bind(most);
    let read = |row: &PgRow| {
        Ok(StoredToken {
            id: TokenId::from_uuid(row.try_get(0)?),
            user: UserId::from_uuid(row.try_get(1)?),
            name: row.try_get(2)?,
            created_at: at(row, 3)?,
            expires_at: maybe_at(row, 4)?,
            revoked_at: maybe_at(row, 5)?,
            scopes: scopes(row, 6)?,
            max_unused_days: days(row, 7)?,
            networks: networks(row, 8)?,
            used_at: maybe_at(row, 9)?,
            managing: managing(row, 10)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}

/// The next tenants, oldest first.
///
/// # Errors
/// When the database does not answer.
pub async fn tenants_page(
    pool: &PgPool,
    filter: TenantFilter<'_>,
    after: Option<Uuid>,
    most: i64,
) -> Result<Vec<StoredTenant>, sqlx::Error> {
    let query = sqlx::query(sql::TENANTS).bind(filter.id.map(TenantId::as_uuid)).bind(filter.name);
    let query = query.bind(tenants(filter.scope)).bind(after).bind(most);
    let read = |row: &PgRow| {
        Ok(StoredTenant {
            id: TenantId::from_uuid(row.try_get(0)?),
            name: row.try_get(1)?,
            labels: row.try_get::<Json<Labels>, _>(2)?.0,
            external_id: row.try_get(3)?,
            revision: Revision::new(row.try_get(4)?),
            domains: row.try_get(5)?,
            created_at: at(row, 6)?,
        })
    };
    query.fetch_all(pool).await?.iter().map(read).collect()
}

/// The next members of a tenant with their mail addresses, or one of them.
///
/// # Errors
/// When the database does not answer.
pub async fn members(
    pool: &PgPool,
    tenant: TenantId,
    user: Option<UserId>,
    after: Option<Uuid>,
    most: i64,
) -> Result<Vec<StoredMember>, sqlx::Error> {
    let query = sqlx::query(sql::MEMBERS).bind(tenant.as_uuid()).bind(user.map(UserId::as_uuid));
    query.bind(after).bind(most).fetch_all(pool).await?.iter().map(member).collect()
}

/// The next members of a single domain, or one of them.
///
/// # Errors
/// When the database does not answer.
pub async fn domain_members(
    pool: &PgPool,
    domain: DomainId,
    user: Option<UserId>,
    after: Option<Uuid>,
    most: i64,
) -> Result<Vec<StoredMember>, sqlx::Error> {
    let query = sqlx::query(sql::DOMAIN_MEMBERS).bind(domain.as_uuid()).bind(user.map(UserId::as_uuid));
    query.bind(after).bind(most).fetch_all(pool).await?.iter().map(member).collect()
}

fn member(row: &PgRow) -> Result<StoredMember, sqlx::Error> {
    let role = Role::from_name(row.try_get(2)?).ok_or_else(|| odd("role"))?;
    Ok(StoredMember { user: UserId::from_uuid(row.try_get(0)?), email: row.try_get(1)?, role })
}
