//! What the processes do, as the programs that are shipped do it.

use std::sync::Arc;

use domain::{Duration, TableName};
use engine::{
    batch, control,
    cycle::{self, Silent, Step},
    maintain::{Budget, maintain},
    runner::{self, Runner},
};
use ports::Clock as _;
use rand::Rng;

use crate::{
    clients::Door,
    gate::silence,
    plan::Mode,
    scheduler::Call,
    sim::{Process, Sim},
};

/// Longest an order is waited for before it is sent again.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest a message can be delayed; what is due later, the schedule finds.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Takes requests.
pub(crate) async fn ingest(process: Process, door: Arc<Door>) {
    door.open(process.world.clone(), process.gate.life.clone());
    std::future::pending().await
}

/// The embedded server: requests, and the runner.
pub(crate) async fn serve(process: Process, door: Arc<Door>) {
    let process = process.within();
    let runner = Runner::new(process.world.clone());
    door.open(process.world.clone(), process.gate.life.clone());
    // It ends only when its queue is closed, which no process lives to see.
    let _ = runner::run_until(&runner, std::future::pending()).await;
}

/// Has a step taken when time alone makes one due.
async fn later(process: &Process, step: &Step) -> ports::Result<()> {
    let Step::Idle(Some(at)) = step else {
        return Ok(());
    };
    let delay = at.since(process.world.clock.now());
    if delay > DELAY_MAX {
        return Ok(());
    }
    let sim = &process.sim;
    let visible = sim.scheduler.clock.now() + delay;
    let work = async {
        sim.advances.put((), None, Some(visible));
        Ok(())
    };
    process
        .gate
        .call(Call::Send, "a later step".to_owned(), silence, work)
        .await
}

/// Function `coalesce`.
pub(crate) async fn coalesce(process: Process) {
    loop {
        let held = process.sim.advances.receive(&process.gate, 5).await;
        let step = cycle::step(&process.world, &*process.refreshes, PATIENCE).await;
        if let Ok(step) = step
            && later(&process, &step).await.is_ok()
        {
            held.done();
        }
    }
}

/// Function `refresh`.
pub(crate) async fn refresh(process: Process) {
    loop {
        let held = process.sim.orders.receive(&process.gate, 1).await;
        let mut done = true;
        for order in held.bodies() {
            let carried =
                cycle::carry_out(&process.world, &*process.refreshes, &order, PATIENCE).await;
            done &= match carried {
                Ok((_, step)) => later(&process, &step).await.is_ok(),
                Err(_) => false,
            };
        }
        if done {
            held.done();
        }
    }
}

/// Function `sweep`: the schedule's tick.
pub(crate) async fn sweep(process: Process) {
    let sim = &process.sim;
    loop {
        let pause = Duration::from_millis(if sim.plan.eager { 20 } else { 8_000 });
        sim.nap(pause).await;
        if sim.plan.schedule
            && let Ok(step) = cycle::step(&process.world, &*process.refreshes, PATIENCE).await
        {
            // What it does not bring about, the next tick does.
            let _ = later(&process, &step).await;
        }
        let budget = Budget::of(&process.world.live.maintenance);
        maintain(&process.world, &budget, process.world.clock.now()).await;
    }
}

/// A person with a batch run.
pub(crate) async fn batches(process: Process, left: Arc<std::sync::atomic::AtomicUsize>) {
    use std::sync::atomic::Ordering::Relaxed;
    while left.load(Relaxed) > 0 {
        process.sim.nap(process.sim.plan.pause * 4).await;
        left.fetch_sub(1, Relaxed);
        let full = process.sim.scheduler.chance(0.4);
        // What the world does not let it do, the live side does.
        let _ = batch::run(&process.world, &[], full, &Silent).await;
    }
}

/// A person with pauses, resumes and requests for a refresh.
pub(crate) async fn controls(process: Process, left: Arc<std::sync::atomic::AtomicUsize>) {
    use std::sync::atomic::Ordering::Relaxed;
    let sim = &process.sim;
    while left.load(Relaxed) > 0 {
        sim.nap(sim.plan.pause * 3).await;
        left.fetch_sub(1, Relaxed);
        let shapes = sim.plan.project;
        let at = sim
            .scheduler
            .draw(|dice| dice.random_range(0..shapes.len()));
        let Ok(model) = shapes[at].name().parse::<TableName>() else {
            continue;
        };
        let asked = match sim.scheduler.draw(|dice| dice.random_range(0..3)) {
            0 => control::set_paused(&process.world, &model, true).await,
            1 => control::set_paused(&process.world, &model, false).await,
            _ => control::refresh_now(&process.world, &model).await,
        };
        if asked.is_ok() && sim.plan.mode != Mode::Embedded {
            sim.advances.put((), None, None);
        }
    }
}

/// Starts everything that a seed's plan names and that goes on for ever.
pub(crate) fn start(sim: &Arc<Sim>) {
    let plan = &sim.plan;
    // Where no schedule makes up for it, who commits lives to announce it.
    let mortal = plan.schedule;
    for (index, door) in sim.doors.iter().enumerate() {
        let door = door.clone();
        let embedded = match plan.mode {
            Mode::Functions => false,
            Mode::Embedded => true,
            Mode::Mixed => index == 0,
        };
        if embedded {
            let body = move |process| serve(process, door.clone());
            tokio::spawn(sim.clone().keep(format!("serve-{index}"), mortal, body));
        } else {
            let body = move |process| ingest(process, door.clone());
            tokio::spawn(sim.clone().keep(format!("ingest-{index}"), mortal, body));
        }
    }
    if plan.mode == Mode::Embedded {
        return;
    }
    for index in 0..plan.coalescers {
        tokio::spawn(
            sim.clone()
                .keep(format!("coalesce-{index}"), true, coalesce),
        );
    }
    for index in 0..plan.refreshers {
        tokio::spawn(sim.clone().keep(format!("refresh-{index}"), true, refresh));
    }
    tokio::spawn(sim.clone().keep("sweep".to_owned(), true, sweep));
}
