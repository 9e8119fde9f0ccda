//! The configuration of a session: what a user's file may contain, and our own values over it.

use serde_json::Value;
use std::ffi::c_char;

use crate::{text, to_c, without_place};

/// The parts of Zenoh's configuration that a user's file may set. The options of k8sdds-perftest set the others.
const ALLOWED: [&str; 4] = [
    "qos/publication",
    "transport/link/rx",
    "transport/link/tx",
    "transport/unicast",
];

/// Lists and objects of a file, with brackets in its texts. The parser calls itself for each level, and the file may come
/// from anywhere.
const MOST_BRACKETS: usize = 500;

/// Returns the first key that is neither allowed nor leads to an allowed one.
fn foreign_key(value: &Value, path: &str) -> Option<String> {
    let Value::Object(members) = value else {
        return Some(path.to_owned());
    };
    members.iter().find_map(|(name, member)| {
        let key = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}/{name}")
        };
        if ALLOWED.contains(&key.as_str()) {
            return None;
        }
        foreign_key(member, &key)
    })
}

fn parse(configuration: &str) -> Result<Value, String> {
    if configuration.trim().is_empty() {
        return Ok(Value::Object(Default::default()));
    }
    let brackets = configuration
        .bytes()
        .filter(|byte| matches!(byte, b'[' | b'{'));
    if brackets.count() > MOST_BRACKETS {
        return Err(format!("more than {MOST_BRACKETS} lists and objects"));
    }
    let value: Value =
        json5::from_str(configuration).map_err(|error| format!("not JSON5: {error}"))?;
    match foreign_key(&value, "") {
        Some(key) if key.is_empty() => Err("not an object".to_owned()),
        Some(key) => Err(format!(
            "'{key}' is set by options, or not allowed; the file may set {}",
            ALLOWED.join(", ")
        )),
        None => Ok(value),
    }
}

/// Whether a rule makes publishers drop samples, or send them without repeating what is lost.
fn drops_samples(value: &Value) -> bool {
    let rules = value["qos"]["publication"].as_array();
    rules.into_iter().flatten().any(|rule| {
        let config = &rule["config"];
        let congestion = config["congestion_control"].as_str();
        config["reliability"] == "best_effort"
            || congestion.is_some_and(|control| control != "block")
    })
}

fn merge(own: Value, into: &mut Value) {
    match (own, into) {
        (Value::Object(own), Value::Object(into)) => {
            for (name, member) in own {
                merge(member, into.entry(name).or_insert(Value::Null));
            }
        }
        (own, into) => *into = own,
    }
}

fn accepted(value: &Value) -> Result<zenoh::Config, String> {
    zenoh::Config::from_json5(&value.to_string())
        .map_err(|error| format!("refused by Zenoh: {}", without_place(&error.to_string())))
}

/// Returns Zenoh's configuration of a user's file with the values of `own` (JSON) over it.
pub fn combined(configuration: &str, own: &str) -> Result<zenoh::Config, String> {
    let mut value = parse(configuration)?;
    merge(
        serde_json::from_str(own).map_err(|error| error.to_string())?,
        &mut value,
    );
    accepted(&value)
}

fn check(configuration: &str, reliable: bool) -> Result<(), String> {
    let value = parse(configuration)?;
    accepted(&value)?;
    if reliable && drops_samples(&value) {
        return Err("it drops samples, but samples are reliable; give -bestEffort (reliability: best-effort)".to_owned());
    }
    Ok(())
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_refused(
    configuration: *const c_char,
    reliable: bool,
) -> *mut c_char {
    check(&text(configuration), reliable)
        .err()
        .map_or(std::ptr::null_mut(), to_c)
}
