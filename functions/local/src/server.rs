//! Connections of `serve`: how many there are, and how long each may keep others waiting.
//!
//! A client that does nothing holds a connection, a file of the process and what waits to be sent to it. So there are at
//! most [`Limits::connections`]; a request has to be said in [`Limits::header`]; an answer that its reader does not take
//! ends. When all connections are taken, the oldest that has asked for nothing yet makes room.

mod patient;

use std::{
    collections::VecDeque,
    io,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;

use self::patient::Patient;

/// Before a connection is accepted again when the system has none to give.
const PAUSE: Duration = Duration::from_millis(100);

/// What connections are held to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections at one time: half of the files that a process may commonly open.
    pub connections: u32,
    /// Longest from the beginning of a connection, or the end of an answer, to the end of the next request's header.
    pub header: Duration,
    /// Longest that an answer waits for its reader to take more of it.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            header: Duration::from_secs(30),
            stall: Duration::from_secs(60),
        }
    }
}

/// Answers requests until `stop`; returns when those under way have ended.
pub async fn answer(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let seats = Seats::new(limits.connections);
    let mut complained = false;
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // The client went before it was there.
            Err(error) if is_of_one_client(&error) => continue,
            Err(error) => {
                // There are as many files as the process may open, say: it goes on when some are closed.
                if !complained {
                    tracing::error!(%error, "no connection can be accepted; trying on");
                }
                complained = true;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        complained = false;
        let taken = tokio::select! {
            () = stop.cancelled() => break,
            taken = seats.take() => taken,
        };
        let Some(seat) = taken else { break };
        // Small answers go out at once instead of waiting for more.
        let _ = stream.set_nodelay(true);
        let connection = connection(stream, router.clone(), limits, seat, stop.clone());
        tokio::spawn(connection);
    }
    drop(listener);
    seats.are_empty().await;
}

fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

async fn connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    seat: Seat,
    stop: CancellationToken,
) {
    let (asked, leave) = (seat.place.clone(), seat.place.leave.clone());
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        asked.has_asked.store(true, Ordering::Relaxed);
        routes.call(request)
    });
    let io = TokioIo::new(Patient::new(stream, limits.stall));
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header);
    let mut served = pin!(server.serve_connection(io, service));
    let mut stopping = false;
    let ended = loop {
        tokio::select! {
            ended = served.as_mut() => break ended,
            () = leave.cancelled() => break Ok(()),
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                served.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = ports::error::chain(&error), "a connection ended");
    }
    drop(seat);
}

/// The connections that there may be.
struct Seats {
    free: Arc<Semaphore>,
    all: u32,
    /// In the order they came, for those that have asked for nothing yet.
    fresh: Mutex<VecDeque<Weak<Place>>>,
}

/// A connection's right to be there, until it is dropped.
struct Seat {
    place: Arc<Place>,
    _permit: OwnedSemaphorePermit,
}

/// What others know of a connection.
#[derive(Default)]
struct Place {
    has_asked: AtomicBool,
    leave: CancellationToken,
}

impl Place {
    fn is_fresh(&self) -> bool {
        !self.has_asked.load(Ordering::Relaxed) && !self.leave.is_cancelled()
    }
}

impl Seats {
    fn new(all: u32) -> Self {
        Self {
            free: Arc::new(Semaphore::new(all as usize)),
            all,
            fresh: Mutex::default(),
        }
    }

    /// A seat; when there is none, the oldest connection that has asked for nothing gives up its own.
    async fn take(&self) -> Option<Seat> {
        let permit = match self.free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.make_room();
                self.free.clone().acquire_owned().await.ok()?
            }
        };
        let place = Arc::new(Place::default());
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        fresh.push_back(Arc::downgrade(&place));
        // It holds no more than there are seats, but for a moment.
        if fresh.len() > 2 * self.all as usize {
            fresh.retain(|place| place.upgrade().is_some_and(|place| place.is_fresh()));
        }
        Some(Seat {
            place,
            _permit: permit,
        })
    }

    fn make_room(&self) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(place) = fresh.pop_front() {
            if let Some(place) = place.upgrade().filter(|place| place.is_fresh()) {
                place.leave.cancel();
                return;
            }
        }
    }

    /// Waits until every seat is given back.
    async fn are_empty(&self) {
        // Never closed, so it ends with all of them.
        let _ = self.free.acquire_many(self.all).await;
    }
}

#[cfg(test)]
mod tests;
