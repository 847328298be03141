//! Text output of a forecast.

use std::io::{self, Write as _};

use super::PoolForecast;
use crate::{
    duration::HumanDuration,
    print::{BOLD, CYAN, GREEN, RED, Screen, visible},
};

/// Maximum number of named nodes per wave.
const MAX_WAVE_NAMES: usize = 6;

/// The level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Summary,
    Steps,
}

/// Prints the forecast for one pool.
pub(crate) fn pool(
    forecast: &PoolForecast,
    detail: Detail,
    screen: &mut Screen<'_>,
) -> io::Result<()> {
    screen.paint(BOLD, format_args!("pool {}", visible(&forecast.pool)))?;
    if !forecast.is_change() {
        return writeln!(screen, ": no change, {}", forecast.to);
    }
    writeln!(screen, ": {} -> {}", forecast.from, forecast.to)?;
    if let Some(refusal) = &forecast.effect.refusal {
        screen.paint(RED, "  refused: ")?;
        return writeln!(screen, "{}", visible(refusal));
    }
    changes(forecast, screen)?;
    effect(forecast, screen)?;
    if detail == Detail::Steps {
        writeln!(screen, "  steps on each node")?;
        for (number, step) in forecast.effect.steps.iter().enumerate() {
            writeln!(screen, "  {:>4}. {}", number + 1, visible(step))?;
        }
    }
    waves(forecast, screen)?;
    drains(forecast, screen)?;
    for note in &forecast.notes {
        writeln!(screen, "  note: {}", visible(note))?;
    }
    Ok(())
}

fn changes(forecast: &PoolForecast, screen: &mut Screen<'_>) -> io::Result<()> {
    let rows: Vec<[String; 3]> = forecast
        .effect
        .changes
        .iter()
        .map(|change| {
            let actions: Vec<String> = change.actions.iter().map(ToString::to_string).collect();
            let actions = if actions.is_empty() { "nothing".into() } else { actions.join(", ") };
            [visible(&change.subject), visible(&actions), visible(&change.rule.to_string())]
        })
        .collect();
    let header = ["CHANGE", "ACTION", "REASON"].map(str::to_owned);
    let width = |column: usize| {
        let cells = std::iter::once(&header).chain(&rows).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let (first, second) = (width(0), width(1));
    for (number, [change, actions, rule]) in std::iter::once(&header).chain(&rows).enumerate() {
        let line = format!("  {change:first$}   {actions:second$}   {rule}");
        if number == 0 {
            screen.paint(CYAN, line.trim_end())?;
        } else {
            write!(screen, "{}", line.trim_end())?;
        }
        writeln!(screen)?;
    }
    Ok(())
}

fn effect(forecast: &PoolForecast, screen: &mut Screen<'_>) -> io::Result<()> {
    let effect = &forecast.effect;
    write!(screen, "  each node: ")?;
    if effect.drain {
        screen.paint(RED, "drain")?;
        write!(screen, " ({}), ", visible(&effect.drain_because))?;
    } else {
        screen.paint(GREEN, "no drain")?;
        write!(screen, " ({}), ", visible(&effect.drain_because))?;
    }
    let rest: Vec<String> = effect
        .actions
        .iter()
        .filter(|action| *action != "drain")
        .map(|text| visible(text))
        .collect();
    if effect.reboot {
        screen.paint(RED, "reboot")?;
    } else if rest.is_empty() {
        screen.paint(GREEN, "nothing else")?;
    } else {
        write!(screen, "{}", rest.join(", "))?;
    }
    writeln!(screen, ", about {}", HumanDuration(effect.node_seconds))?;
    let super::Size { bytes, limit } = forecast.size;
    let share = bytes.saturating_mul(1000) / limit.max(1);
    writeln!(screen, "  size: {bytes} of {limit} bytes, {}.{} %", share / 10, share % 10)
}

fn waves(forecast: &PoolForecast, screen: &mut Screen<'_>) -> io::Result<()> {
    if forecast.nodes.is_empty() {
        return Ok(());
    }
    let going: usize = forecast.waves.iter().map(Vec::len).sum();
    let (count, time) = (forecast.waves.len(), HumanDuration(forecast.seconds));
    let plural =
        |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let (nodes, waves) = (plural(going, "node"), plural(count, "wave"));
    if count == 0 {
        writeln!(screen, "  order: no node starts")?;
    } else {
        writeln!(screen, "  order: {nodes} in {waves}, about {time}")?;
    }
    for (number, wave) in forecast.waves.iter().enumerate() {
        let names: Vec<&str> = wave.iter().take(MAX_WAVE_NAMES).map(String::as_str).collect();
        let more = wave.len().saturating_sub(MAX_WAVE_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(screen, "  {:>4}. {}{more}", number + 1, visible(&names.join(", ")))?;
    }
    for node in &forecast.nodes {
        if let Some(reason) = &node.waits {
            writeln!(screen, "  waits: {}: {}", visible(&node.node), visible(reason))?;
        }
        if let Some(refusal) = &node.refusal {
            writeln!(screen, "  refused: {}: {}", visible(&node.node), visible(refusal))?;
        }
        if node.from != forecast.from && node.refusal.is_none() {
            let actions = node.actions.join(", ");
            let actions = if actions.is_empty() { "nothing" } else { &actions };
            writeln!(screen, "  differs: {} runs {}: {actions}", node.node, node.from)?;
        }
    }
    Ok(())
}

fn drains(forecast: &PoolForecast, screen: &mut Screen<'_>) -> io::Result<()> {
    for node in &forecast.nodes {
        let Some(drain) = &node.drained else { continue };
        for blocker in &drain.blockers {
            screen.paint(RED, "  blocked: ")?;
            writeln!(screen, "{}: {}", visible(&node.node), visible(&blocker.to_string()))?;
        }
        for wait in &drain.waits {
            let text = visible(&wait.to_string());
            writeln!(screen, "  slow: {}: {text}", visible(&node.node))?;
        }
        for loss in &drain.losses {
            let text = visible(&loss.to_string());
            writeln!(screen, "  loses: {}: {text}", visible(&node.node))?;
        }
    }
    Ok(())
}
