//! What all statements share: functions, rules, memory, settings.

use std::{path::PathBuf, sync::Arc};

use datafusion::{
    common::Result,
    execution::{
        FunctionRegistry, SessionState, SessionStateBuilder,
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool},
        runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
    },
    prelude::SessionConfig,
};
use ports::Objects;

use crate::{
    aggregated, casts,
    catalog::{CATALOG, SCHEMA},
    checked, floats, growth, json, memberships,
    model::warehouse,
    orders, semi, sums, types,
};

/// Resources of the query engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes that all statements of the process may use together.
    pub memory: usize,
    /// Where sorts, joins and aggregates put what does not fit; none means that they fail instead.
    pub spill: Option<PathBuf>,
    /// Threads, and partitions of a plan.
    pub threads: usize,
}

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Most bytes a sort keeps back for merging what it spilled.
const SORT_RESERVATION_MAX: usize = 10 * 1024 * 1024;

/// The state every statement starts from.
pub(crate) fn base(settings: &Settings, objects: Objects) -> Result<SessionState> {
    let mut state = SessionStateBuilder::new_with_default_features()
        .with_config(config(settings))
        .with_runtime_env(Arc::new(runtime(settings, objects)?))
        .with_type_planner(Arc::new(types::Types))
        .with_optimizer_rule(Arc::new(semi::DistinctSemi))
        .with_optimizer_rule(Arc::new(orders::OrderOnce))
        .build();
    json::register(&mut state)?;
    state.register_function_rewrite(Arc::new(growth::BoundGrowth))?;
    state.add_analyzer_rule(Arc::new(memberships::Memberships));
    state.add_analyzer_rule(Arc::new(aggregated::LoneAggregates));
    state.add_analyzer_rule(Arc::new(casts::TextToTime));
    state.add_analyzer_rule(Arc::new(floats::TotalFloats));
    state.add_analyzer_rule(Arc::new(sums::CheckedSums));
    state.add_analyzer_rule(Arc::new(checked::CheckedOperators));
    state.add_analyzer_rule(Arc::new(json::ExactNumbers));
    Ok(state)
}

fn config(settings: &Settings) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_information_schema(false)
        .with_target_partitions(settings.threads.max(1))
        .with_batch_size(BATCH_ROWS);
    let options = config.options_mut();
    options.sql_parser.map_string_types_to_utf8view = false;
    options.optimizer.expand_views_at_output = true;
    options.execution.time_zone = Some(String::from("+00:00"));
    options.execution.planning_concurrency = settings.threads.max(1);
    options.execution.sort_spill_reservation_bytes =
        (settings.memory / 16).min(SORT_RESERVATION_MAX);
    options.execution.sort_pushdown_buffer_capacity = settings.memory / 4;
    config
}

fn runtime(settings: &Settings, objects: Objects) -> Result<RuntimeEnv> {
    let mode = match &settings.spill {
        Some(folder) => DiskManagerMode::Directories(vec![folder.clone()]),
        None => DiskManagerMode::Disabled,
    };
    let pool: Arc<dyn MemoryPool> = match settings.spill {
        Some(_) => Arc::new(FairSpillPool::new(settings.memory)),
        None => Arc::new(GreedyMemoryPool::new(settings.memory)),
    };
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode))
        .build()?;
    runtime.register_object_store(warehouse()?.as_ref(), objects);
    Ok(runtime)
}
