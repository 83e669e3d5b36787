//! Functions that an sdk adapter maps: `fn(&Value) -> Result<Value, E>`.
use actum_json::Value;

fn text(parameters: &Value) -> Result<&str, String> {
    parameters.get("text").and_then(Value::as_str).ok_or_else(|| "text is missing".to_string())
}

pub fn words(parameters: &Value) -> Result<Value, String> {
    let text = text(parameters)?;
    let words = text.split_whitespace().count();
    Ok(Value::object([("words", words.into()), ("characters", text.chars().count().into())]))
}

pub fn longest(parameters: &Value) -> Result<Value, String> {
    let words = text(parameters)?.split_whitespace();
    let longest = words.fold("", |best, each| {
        if each.chars().count() > best.chars().count() { each } else { best }
    });
    if longest.is_empty() {
        return Err("the text has no word".to_string());
    }
    Ok(longest.into())
}
