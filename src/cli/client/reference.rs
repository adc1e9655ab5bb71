//! docs/CLI.md and the completions: both made from the command line itself, so they cannot say something else.

use std::fmt::Write as _;

use anyhow::Result;
use clap::{Arg, Command};
use clap_complete::Shell;

use super::output::raw;

/// For the help of `completions`.
pub const COMPLETIONS_EXAMPLES: &str = "Examples:
  headwater completions bash > /etc/bash_completion.d/headwater
  headwater completions zsh > ~/.zfunc/_headwater";

const INTRODUCTION: &str = "# The commands of headwater

Made by `headwater cli-reference > docs/CLI.md`; a test fails when it is out of date.

Data goes to stdout, talk to stderr. Exit codes:

| code | means |
| --- | --- |
| 0 | done |
| 1 | failed |
| 2 | wrong usage |
| 3 | refused or different: a conflict, a guard, a stale `--if-match`, an operation that failed, a verify that found a difference |

The API and the token come from `--url` and `--token-file`, `HEADWATER_URL` and `HEADWATER_TOKEN_FILE`, or `[client]` of the
configuration (`--config`, `HEADWATER_CONFIG`, `./.headwater/headwater.toml`, `/etc/headwater/headwater.toml`), in this order.
Every mutation carries an `Idempotency-Key`, so what is repeated after a lost connection happens once.
";

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed
  2  wrong usage
  3  refused or different: a conflict, a guard, a stale --if-match, an operation that failed, a difference found";

/// The whole command line, with examples at every noun too: one of each of its verbs.
pub fn with_examples(root: Command) -> Command {
    let root = root.mut_subcommands(nouns_with_examples);
    root.after_help(format!(
        "Examples:\n  headwater demo\n  headwater domain create example.com --active --wait\n  headwater rrset set \
         example.com www A 192.0.2.1 --wait\n  headwater events tail --after 0\n  headwater help rrset set\n\n{EXIT_CODES}"
    ))
}

fn nouns_with_examples(command: Command) -> Command {
    let examples: Vec<String> = command.get_subcommands().filter_map(first_example).collect();
    if examples.is_empty() || command.get_after_help().is_some() {
        return command;
    }
    let command = command.mut_subcommands(nouns_with_examples);
    command.after_help(format!("Examples:\n{}\n\nMore with each verb: --help", examples.join("\n")))
}

/// The first line of a verb's examples.
fn first_example(verb: &Command) -> Option<String> {
    let help = verb.get_after_help()?.to_string();
    help.lines().find(|line| line.starts_with("  headwater ")).map(str::to_owned)
}

/// Prints the completions of a shell.
pub fn completions(shell: Shell, mut root: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, "headwater", &mut script);
    Ok(raw(&script)?)
}

/// The reference of all commands that are not hidden, as Markdown.
pub fn markdown(mut root: Command) -> String {
    root.build();
    let mut text = INTRODUCTION.to_owned();
    let globals: Vec<&Arg> = root.get_arguments().filter(|arg| arg.is_global_set()).collect();
    text.push_str("\n## Options of every command\n\n");
    arguments(&mut text, &globals);
    for command in root.get_subcommands().filter(|command| is_shown(command)) {
        section(&mut text, command, 2);
    }
    text
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn section(text: &mut String, command: &Command, level: usize) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let heading = "#".repeat(level);
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string);
    push(text, format_args!("\n{heading} {name}\n\n{}\n", about.unwrap_or_default()));
    let children: Vec<&Command> = command.get_subcommands().filter(|child| is_shown(child)).collect();
    if children.is_empty() {
        let usage = command.clone().render_usage().to_string();
        push(text, format_args!("\n```text\n{}\n```\n", usage.trim()));
        let own: Vec<&Arg> = command
            .get_arguments()
            .filter(|arg| {
                !arg.is_global_set()
                    && !arg.is_hide_set()
                    && !matches!(arg.get_id().as_str(), "help" | "version")
            })
            .collect();
        if !own.is_empty() {
            text.push('\n');
            arguments(text, &own);
        }
        if let Some(examples) = command.get_after_help() {
            push(text, format_args!("\n```text\n{}\n```\n", examples.to_string().trim_end()));
        }
    }
    for child in children {
        section(text, child, level + 1);
    }
}

fn arguments(text: &mut String, arguments: &[&Arg]) {
    for argument in arguments {
        let values: Vec<String> = argument
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| value.get_name().to_owned())
            .collect();
        let default: Vec<String> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        push(text, format_args!("- `{argument}`"));
        if let Some(help) = argument.get_long_help().or_else(|| argument.get_help()) {
            push(text, format_args!(": {help}"));
        }
        let takes_value = argument.get_action().takes_values();
        if takes_value && !values.is_empty() {
            push(text, format_args!(" (one of {})", values.join(", ")));
        }
        if takes_value && default.iter().any(|value| !value.is_empty()) {
            push(text, format_args!(" [default: {}]", default.join(" ")));
        }
        if let Some(variable) = argument.get_env() {
            push(text, format_args!(" [env: {}]", variable.to_string_lossy()));
        }
        text.push('\n');
    }
}

fn push(text: &mut String, piece: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _written = text.write_fmt(piece);
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    fn leaves(command: &Command, found: &mut Vec<Command>) {
        let children: Vec<&Command> = command.get_subcommands().filter(|child| is_shown(child)).collect();
        if children.is_empty() {
            found.push(command.clone());
        }
        children.into_iter().for_each(|child| leaves(child, found));
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let mut root = Cli::command();
        root.clone().debug_assert();
        root.build();
        let mut all = Vec::new();
        leaves(&root, &mut all);
        assert!(all.len() > 40, "only {} commands", all.len());
        for command in all {
            let name = command.get_bin_name().unwrap().to_owned();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n  "), "{name} has no examples");
            let joined = help.replace("\\\n", " ");
            let lines: Vec<&str> =
                joined.lines().filter(|line| line.trim_start().starts_with("headwater ")).collect();
            assert!(!lines.is_empty(), "{name} has no example that calls it");
            for line in lines {
                let line = line.split(" | ").next().unwrap();
                let line = line.split(" > ").next().unwrap().split(" < ").next().unwrap();
                let words = words(line);
                let parsed = Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{name}: {line}: {}", parsed.err().unwrap());
            }
        }
    }

    fn all(command: &Command, found: &mut Vec<Command>) {
        found.push(command.clone());
        command.get_subcommands().filter(|child| is_shown(child)).for_each(|child| all(child, found));
    }

    #[test]
    fn the_help_of_every_noun_and_verb_has_examples() {
        let mut root = with_examples(Cli::command());
        root.build();
        let mut commands = Vec::new();
        all(&root, &mut commands);
        for mut command in commands {
            let name = command.get_bin_name().unwrap_or_default().to_owned();
            for help in [command.render_help().to_string(), command.render_long_help().to_string()] {
                let examples = help.split_once("Examples:\n").map(|(_, examples)| examples.to_owned());
                let first = examples.as_deref().and_then(|examples| examples.lines().next());
                assert!(first.is_some_and(|line| line.contains("headwater ")), "{name}: {help}");
            }
        }
        assert!(root.render_help().to_string().contains("Exit codes:"));
    }

    /// Splits as a shell does, as far as the examples need it.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for character in line.trim().chars() {
            match character {
                '\'' => quoted = !quoted,
                ' ' if !quoted => {
                    words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()))
                }
                other => word.push(other),
            }
        }
        words.push(word);
        words
    }

    #[test]
    fn the_reference_does_not_depend_on_the_terminal() {
        let text = markdown(Cli::command());
        assert_eq!(text, markdown(Cli::command().term_width(20)));
        assert!(text.contains("### headwater domain create"), "{text}");
        assert!(!text.contains("cli-reference\n\nPrints"), "hidden commands are not in it");
    }
}
