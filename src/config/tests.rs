//! Facts about the configuration.

use std::path::PathBuf;

use super::*;

fn parse(text: &str, variables: &[(&str, &str)]) -> std::result::Result<Config, ConfigError> {
    let variables = variables.iter().filter_map(|(name, value)| EnvironmentVariable::new(name, value));
    Config::parse(text, Some(PathBuf::from("/etc/headwater/headwater.toml")), variables)
}

fn faults(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    parse(text, variables).map(|_| Vec::new()).unwrap_or_else(|error| error.faults().to_vec())
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let config = parse("", &[]).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.database.max_connections, 20);
    assert_eq!(
        config.dns.nameservers.iter().map(HostName::as_str).collect::<Vec<_>>(),
        ["ns1.example.net", "ns2.example.net"]
    );
    assert_eq!(config.dns.hostmaster.as_str(), "hostmaster.example.net");
    assert_eq!((config.dns.refresh, config.dns.retry, config.dns.expire), (3_600, 600, 1_209_600));
    assert_eq!(config.operations.deadline, Duration::from_secs(120));
    assert_eq!(config.deploy.poll, Duration::from_millis(500));
    assert_eq!(config.limits.mutations_per_minute, 1_200);
    assert!(config.client.url.is_none() && config.database.read_url().is_err());
}

#[test]
fn the_environment_stands_above_the_file() {
    let config = parse(
        "[server]\nlisten = '127.0.0.1:1'\n[limits]\nreads_per_minute = 7\n",
        &[
            ("HEADWATER_SERVER__LISTEN", "[::1]:9"),
            ("HEADWATER_DNS__NAMESERVERS", "a.example.org, b.example.org."),
            ("HEADWATER_LIMITS__DOMAINS_PER_TENANT", "5"),
            ("HEADWATER_URL", "not a key of the configuration"),
            ("PATH", "/bin"),
        ],
    )
    .unwrap();
    assert_eq!(config.server.listen.to_string(), "[::1]:9");
    assert_eq!(config.dns.nameservers[1].as_str(), "b.example.org");
    assert_eq!((config.limits.domains_per_tenant, config.limits.reads_per_minute), (5, 7));
}

#[test]
fn every_unknown_key_is_named() {
    let found = faults(
        "top = 1\n[sever]\nx = 1\n[server]\nlisten_on = 'x'\nport = 2\n",
        &[("HEADWATER_LIMITS__DOMAINS", "5")],
    );
    assert_eq!(
        found,
        [
            "server.listen_on is an unknown key",
            "server.port is an unknown key",
            "[sever] is an unknown section",
            "top is an unknown key; every key stands in a section",
            "HEADWATER_LIMITS__DOMAINS is an unknown key",
        ]
    );
}

#[test]
fn every_value_out_of_range_is_named() {
    let cases = [
        ("[dns]\nrefresh = 299", "dns.refresh must be a whole number from 300 to 86400"),
        ("[dns]\nretry = 86401", "dns.retry must be a whole number from 60 to 86400"),
        ("[dns]\nexpire = 86399", "dns.expire must be a whole number from 86400 to 2419200"),
        ("[dns]\nminimum = 29", "dns.minimum must be a whole number from 30 to 86400"),
        ("[dns]\nsoa_ttl = -1", "dns.soa_ttl must be a whole number from 0 to 2147483647"),
        ("[dns]\nrefresh = '3600'", "dns.refresh must be a whole number from 300 to 86400"),
        (
            "[dns]\nexpire = 86400\nrefresh = 80000\nretry = 6400",
            "dns.expire must be greater than refresh and retry together",
        ),
        ("[dns]\nnameservers = ['ns1.example.net']", "dns.nameservers must be 2 to 8 names"),
        ("[dns]\nnameservers = ['a.test.', 'A.test']", "dns.nameservers names one server twice"),
        ("[server]\nlisten = 8080", "server.listen must be a text in quotes"),
        (
            "[limits]\ndomains_per_tenant = 0",
            "limits.domains_per_tenant must be a whole number from 1 to 1000000",
        ),
        ("server = 1", "server must be a section: [server]"),
    ];
    for (text, fault) in cases {
        assert_eq!(faults(text, &[]), [fault], "{text}");
    }
    let all =
        cases[..5].iter().map(|(text, _)| text.trim_start_matches("[dns]\n")).collect::<Vec<_>>().join("\n");
    assert_eq!(faults(&format!("[dns]\n{all}"), &[]).len(), 5);
}

#[test]
fn a_bad_host_name_or_url_is_refused() {
    for name in [
        "",
        ".",
        "ns1",
        "-a.test",
        "a..test",
        "a b.test",
        &"a.".repeat(130),
        &format!("{}.test", "a".repeat(64)),
    ] {
        assert!(name.parse::<HostName>().is_err(), "{name}");
    }
    for url in ["", "headwater", "ftp://x", "http://x/api", "http://u:p@x", "http://", "http://x?y"] {
        assert!(url.parse::<ApiUrl>().is_err(), "{url}");
    }
    assert_eq!("http://127.0.0.1:80/".parse::<ApiUrl>().unwrap().as_str(), "http://127.0.0.1:80");
}

#[test]
fn secrets_come_from_one_place_and_never_into_a_fault() {
    let both = "[database]\nurl = 'postgres://o:hunter2@h/d'\nurl_file = 'database-url'\n";
    assert_eq!(faults(both, &[]), ["database.url and url_file are both set; set one of them"]);
    let by_file = parse("[database]\nurl_file = 'database-url'\n", &[]).unwrap();
    assert!(matches!(by_file.database.url, Some(SecretSource::File(path))
        if path == Path::new("/etc/headwater/database-url")));
    let above =
        parse("[database]\nurl_file = 'x'\n", &[("HEADWATER_DATABASE__URL", "postgres://e")]).unwrap();
    assert_eq!(above.database.read_url().unwrap().expose(), "postgres://e");
    for text in [
        "[database]\nurl = 'hunter2",
        "[database]\nurll = 'hunter2'",
        "[database]\nmax_connections = 'hunter2'",
    ] {
        let error = parse(text, &[]).err().unwrap().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
