//! `headwater import`: zones of other servers, taken in (administrators). Paths are those of the machine that the server
//! runs on: it reads them.

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use uuid::Uuid;

use super::error::ClientError;
use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Common, operation_id};
use super::output::{Column, cell, data, plain_table, talk};
use super::{Console, projection, read_input, show_one, wait};

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("STATE", "/state"),
    ("SOURCE", "/request/source/kind"),
    ("MODE", "/request/mode"),
    ("DONE", "/progress/done"),
    ("ZONES", "/progress/total"),
    ("CREATED", "/created_at"),
];

/// For the help of `import start`.
const START_EXAMPLES: &str = "Examples:
  headwater import start --archive /var/backups/zones --dry-run
  headwater import start --pdns-postgres /etc/headwater/old-pdns.url --account acme=01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10
  headwater import start --pdns-api http://192.0.2.10:8081 --api-key-file /etc/headwater/old-pdns.key --follow
  headwater import start --axfr 192.0.2.53:53 --zones-file zones.txt --tsig transfer.example.net --tsig-file /etc/headwater/transfer.key

Files and directories are those of the machine that the server runs on, except for --zones-file. Whoever has zone files
elsewhere copies the directory there, or sends one zone after the other with `headwater zone import`.";

/// What can be done with imports.
#[derive(Subcommand)]
pub enum ImportCommand {
    /// Takes zones of another server in: exit 3 when not all of them are here afterwards
    #[command(after_help = START_EXAMPLES)]
    Start(Box<StartArgs>),
    /// Lists imports
    #[command(after_help = "Examples:
  headwater import list")]
    List {
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Shows an import: how far it is, and how many zones came to what
    #[command(after_help = "Examples:
  headwater import status 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10")]
    Status {
        /// The import
        id: Uuid,
    },
    /// Shows what came of each zone
    #[command(after_help = "Examples:
  headwater import report 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --outcome refused,failed
  headwater import report 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --json | jq '.items[] | select(.not_carried != [])'")]
    Report {
        /// The import
        id: Uuid,
        /// Only these, separated by commas: imported, unchanged, refused, skipped, failed, conflict, missing
        #[arg(long, value_name = "OUTCOME")]
        outcome: Option<String>,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Asks the old server and ours the same, and prints where they differ: exit 3 when they do
    #[command(after_help = "Examples:
  headwater import compare 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --old 192.0.2.53:53
  headwater import compare 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --old 192.0.2.53:53 --zone '*.example.com' --ignore-ttl

Asked are every RRset that is here, types and names that are not there, wildcards, empty names, and what lies below
delegations. What could not be carried is told by `headwater import report`.")]
    Compare {
        /// The import
        id: Uuid,
        /// Where the old server answers
        #[arg(long, value_name = "ADDR:PORT")]
        old: SocketAddr,
        /// Only this zone, or with *. everything below a name; may be repeated
        #[arg(long, value_name = "NAME")]
        zone: Vec<String>,
        /// TTLs may differ, as where the old server is a cache
        #[arg(long)]
        ignore_ttl: bool,
        /// Prints the operation and does not wait for its end
        #[arg(long, help_heading = "Wait")]
        no_wait: bool,
        /// How it is changed.
        #[command(flatten)]
        common: Common,
    },
    /// Ends an import that follows its source: a last look, then the source is asked no more
    #[command(after_help = "Examples:
  headwater import cutover 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10
  headwater import cutover 01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10 --without-last-look")]
    Cutover {
        /// The import
        id: Uuid,
        /// Without the last look, where the source is gone
        #[arg(long)]
        without_last_look: bool,
        /// Prints the operation and does not wait for its end
        #[arg(long, help_heading = "Wait")]
        no_wait: bool,
        /// How it is changed.
        #[command(flatten)]
        common: Common,
    },
}

/// What becomes of domains that are here already.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Existing {
    /// They stay as they are
    Skip,
    /// They become what the source says
    Replace,
    /// RRsets of the source take the place of those with their name and type
    Merge,
}

/// Where zones come from, and what becomes of them.
#[derive(Args)]
pub struct StartArgs {
    /// From a directory of BIND files, called after their zones
    #[arg(long, value_name = "DIR", group = "from", help_heading = "Source")]
    archive: Option<String>,
    /// From the database of a PowerDNS: the file that holds its URL
    #[arg(long, value_name = "FILE", group = "from", help_heading = "Source")]
    pdns_postgres: Option<String>,
    /// From the HTTP API of a PowerDNS
    #[arg(long, value_name = "URL", group = "from", requires = "api_key_file", help_heading = "Source")]
    pdns_api: Option<String>,
    /// By transfers from a primary
    #[arg(long, value_name = "ADDR:PORT", group = "from", help_heading = "Source")]
    axfr: Option<SocketAddr>,
    /// The file that holds the key of that API
    #[arg(long, value_name = "FILE", requires = "pdns_api", help_heading = "Source")]
    api_key_file: Option<String>,
    /// The name of the TSIG key
    #[arg(long, value_name = "NAME", requires = "axfr", requires = "tsig_file", help_heading = "Source")]
    tsig: Option<String>,
    /// How it signs
    #[arg(long, value_name = "NAME", default_value = "hmac-sha256", help_heading = "Source")]
    tsig_algorithm: String,
    /// The file that holds its secret in base64
    #[arg(long, value_name = "FILE", requires = "tsig", help_heading = "Source")]
    tsig_file: Option<String>,
    /// Only this zone, or with *. everything below a name; may be repeated
    #[arg(long, value_name = "NAME")]
    zone: Vec<String>,
    /// The same from a file with one name a line (here; - is stdin)
    #[arg(long, value_name = "FILE")]
    zones_file: Option<std::path::PathBuf>,
    /// Zones with this account are this tenant's; may be repeated
    #[arg(long, value_name = "ACCOUNT=TENANT")]
    account: Vec<String>,
    /// Whose all other zones are [default: the platform's, without --account]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<Uuid>,
    /// What becomes of domains that are here already and differ
    #[arg(long, value_enum, default_value = "skip")]
    on_existing: Existing,
    /// Leaves new domains pending until their ownership is proven
    #[arg(long)]
    no_activate: bool,
    /// Keeps up with the source until the cutover
    #[arg(long)]
    follow: bool,
    /// How often the source is looked at then, in seconds
    #[arg(long, value_name = "SECONDS", requires = "follow")]
    follow_seconds: Option<u32>,
    /// Judges and reports every zone, and changes nothing
    #[arg(long, conflicts_with = "follow")]
    rehearse: bool,
    /// Allows what a guard refuses (such as mass_delete); may be repeated
    #[arg(long, value_name = "GUARD", help_heading = "Change")]
    allow: Vec<String>,
    /// Prints the import and does not wait for its end
    #[arg(long, help_heading = "Wait")]
    no_wait: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub async fn run(console: &Console, command: ImportCommand) -> Result<()> {
    match command {
        ImportCommand::Start(args) => start(console, *args).await,
        ImportCommand::List { list } => {
            list::show(console, Call::get(&["imports"])?, COLUMNS, &list.of_history()).await
        }
        ImportCommand::Status { id } => show_one(console, Call::get(&["imports", &id.to_string()])?).await,
        ImportCommand::Report { id, outcome, list } => {
            let call = Call::get(&["imports", &id.to_string(), "report"])?.maybe("outcome", outcome);
            list::show_with(console, call, &list, report).await
        }
        ImportCommand::Compare { id, old, zone, ignore_ttl, no_wait, common } => {
            let mut body = json!({"old": old, "ignore_ttl": ignore_ttl});
            if !zone.is_empty() {
                body["zones"] = json!(zone);
            }
            let call = Call::post(&["imports", &id.to_string(), "compare"])?.json(&body);
            compare(console, call, &common, no_wait).await
        }
        ImportCommand::Cutover { id, without_last_look, no_wait, common } => {
            let call = Call::post(&["imports", &id.to_string(), "cutover"])?;
            let call = call.json(&json!({"without_last_look": without_last_look}));
            if common.dry_run {
                let answer = console.api.send(&common.apply(call)?).await?;
                return Ok(data(answer.text.trim_end())?);
            }
            let operation = follow(console, &common.apply(call)?, no_wait).await?;
            finish(console, &id.to_string(), operation, "cutover").await
        }
    }
}

impl StartArgs {
    fn source(&self, zones: &[String]) -> Result<Value> {
        if let Some(path) = &self.archive {
            return Ok(json!({"kind": "archive", "path": path}));
        }
        if let Some(file) = &self.pdns_postgres {
            return Ok(json!({"kind": "pdns_postgres", "database_url_file": file}));
        }
        if let Some(url) = &self.pdns_api {
            return Ok(json!({"kind": "pdns_api", "url": url, "api_key_file": self.api_key_file}));
        }
        let Some(primary) = self.axfr else {
            return Err(ClientError::usage(
                "where from? Give --archive, --pdns-postgres, --pdns-api or --axfr",
            ));
        };
        if zones.is_empty() {
            return Err(ClientError::usage(
                "a primary has no list of its zones: give --zone or --zones-file",
            ));
        }
        let mut source = json!({"kind": "axfr", "primary": primary, "zones": zones});
        if let (Some(name), Some(file)) = (&self.tsig, &self.tsig_file) {
            source["tsig"] = json!({"name": name, "algorithm": self.tsig_algorithm, "secret_file": file});
        }
        Ok(source)
    }

    fn tenants(&self) -> Result<Option<Value>> {
        if self.account.is_empty() && self.tenant.is_none() {
            return Ok(None);
        }
        let mut accounts = Map::new();
        for pair in &self.account {
            match pair.rsplit_once('=') {
                Some((account, tenant)) => accounts.insert(account.to_owned(), json!(tenant)),
                None => {
                    return Err(ClientError::usage(format!("--account {pair}: write it as account=tenant")));
                }
            };
        }
        Ok(Some(json!({"by_account": accounts, "default": self.tenant})))
    }

    fn body(&self) -> Result<Value> {
        let mut zones = self.zone.clone();
        if let Some(file) = &self.zones_file {
            let text = read_input(file)?;
            let names = text.lines().map(str::trim).filter(|name| !name.is_empty() && !name.starts_with('#'));
            zones.extend(names.map(str::to_owned));
        }
        let source = self.source(&zones)?;
        let is_axfr = self.axfr.is_some();
        let mode = match (self.follow, self.rehearse) {
            (true, _) => "follow",
            (_, true) => "rehearse",
            _ => "once",
        };
        let existing = self.on_existing.to_possible_value();
        let mut body = json!({
            "source": source, "mode": mode, "activate": !self.no_activate,
            "on_existing": existing.map(|value| value.get_name().to_owned()),
        });
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                body[key] = value;
            }
        };
        set("tenants", self.tenants()?);
        set("zones", Some(json!(zones)).filter(|_| !zones.is_empty() && !is_axfr));
        set("follow_seconds", self.follow_seconds.map(Value::from));
        Ok(body)
    }
}

async fn start(console: &Console, args: StartArgs) -> Result<()> {
    let call = Call::post(&["imports"])?.json(&args.body()?).each("allow", &args.allow);
    let call = args.common.apply(call)?;
    if args.common.dry_run {
        let answer = console.api.send(&call).await?;
        if console.json {
            return Ok(data(answer.text.trim_end())?);
        }
        let plan = answer.json()?;
        let lines = plan.get("diff").and_then(Value::as_array).cloned().unwrap_or_default();
        data(report(&lines))?;
        for warning in plan.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            talk(format_args!("warning: {}", cell(Some(warning))));
        }
        return Ok(());
    }
    let answer = follow(console, &call, args.no_wait).await?;
    let id = answer.as_ref().map(|operation| cell(operation.get("id"))).unwrap_or_default();
    finish(console, &id, answer, "import").await
}

/// Prints where answers differ.
async fn compare(console: &Console, call: Call, common: &Common, no_wait: bool) -> Result<()> {
    if common.dry_run {
        let answer = console.api.send(&common.apply(call)?).await?;
        return Ok(data(answer.text.trim_end())?);
    }
    let Some(found) = projection::follow(console, &common.apply(call)?, "answers", no_wait).await? else {
        return Ok(());
    };
    if console.json {
        data(json!({"differences": found.differences, "result": found.result}))?;
    } else {
        let noun = if found.differences == 1 { "answer differs" } else { "answers differ" };
        data(format_args!("{} {noun}", found.differences))?;
    }
    match found.differences {
        0 => Ok(()),
        _ => Err(ClientError::refused("the old server and ours do not answer alike")),
    }
}

/// Submits and watches to the end; none when nobody waits.
async fn follow(console: &Console, call: &Call, no_wait: bool) -> Result<Option<Value>> {
    let body = console.api.send(call).await?.json()?;
    let Some(id) = operation_id(&body) else { bail!("the API answered without an operation: check the URL") };
    if no_wait {
        data(if console.json { body.to_string() } else { format!("operation {id}") })?;
        talk(format_args!("it is carried out by the server: `headwater op wait {id}`"));
        return Ok(None);
    }
    talk(format_args!("operation {id}"));
    let limit = wait::Limit::longest();
    tokio::select! {
        ended = wait::watch_end(&console.api, &id, &limit) => ended.map(Some),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            bail!("it goes on without you: wait for it with `headwater op wait {id}`, or end it with `headwater op cancel {id}`");
        }
    }
}

/// Says what it came to.
async fn finish(console: &Console, import: &str, operation: Option<Value>, what: &str) -> Result<()> {
    let Some(operation) = operation else { return Ok(()) };
    wait::judge(&operation)?;
    let shown = console.api.fetch(&Call::get(&["imports", import])?).await?;
    let count = |name: &str| shown.pointer(&format!("/outcomes/{name}")).and_then(Value::as_u64).unwrap_or(0);
    if console.json {
        data(&shown)?;
    } else {
        let told = ["imported", "unchanged", "refused", "skipped", "failed", "conflict", "missing"];
        let told: Vec<String> = told
            .iter()
            .filter(|name| count(name) > 0)
            .map(|name| format!("{} {name}", count(name)))
            .collect();
        data(format_args!(
            "{what} {import}: {}",
            if told.is_empty() { "no zones".to_owned() } else { told.join(", ") }
        ))?;
    }
    for one in shown.get("not_carried").and_then(Value::as_array).into_iter().flatten() {
        talk(format_args!("not carried: {} {}", cell(one.get("what")), cell(one.get("name"))));
    }
    match count("refused") + count("skipped") + count("failed") + count("conflict") {
        0 => Ok(()),
        left => Err(ClientError::refused(format!(
            "{left} zones are not here as the source has them\n  next: see why with `headwater import report {import} \
             --outcome refused,skipped,failed,conflict`"
        ))),
    }
}

/// Zones with what came of them, and below each what is to be known of it.
fn report(lines: &[Value]) -> String {
    let mut rows = Vec::new();
    for line in lines {
        let listed = |name: &str| line.get(name).and_then(Value::as_array).into_iter().flatten();
        let faults = listed("faults").map(|fault| {
            let place = [fault.get("line"), fault.get("record")].map(cell);
            format!("{} {}: {}", place[0], place[1], cell(fault.get("detail")))
        });
        let left = listed("not_carried").map(|one| {
            let parts = ["what", "name", "type", "count"].map(|key| cell(one.get(key)));
            format!("not carried: {}", parts.join(" "))
        });
        let warnings = listed("warnings").chain(listed("conflicts")).map(|text| cell(Some(text)));
        let told: Vec<String> = faults.chain(left).chain(warnings).collect();
        let mut told = told.into_iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        let head = ["zone", "outcome", "records"].map(|key| cell(line.get(key)));
        let [zone, outcome, records] = head;
        rows.push(vec![zone, outcome, records, told.next().unwrap_or_default()]);
        rows.extend(told.map(|text| vec![String::new(), String::new(), String::new(), text]));
    }
    plain_table(["ZONE", "OUTCOME", "RECORDS", "TOLD"].map(str::to_owned).to_vec(), rows)
}
