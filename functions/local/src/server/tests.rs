use std::time::Instant;

use axum::{body::Body, routing::get};
use futures::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A server with two routes: one answers, the other never stops answering.
async fn start(limits: Limits) -> (std::net::SocketAddr, CancellationToken) {
    let endless = || async {
        let piece = bytes::Bytes::from(vec![b'x'; 1 << 20]);
        Body::from_stream(stream::repeat_with(move || {
            Ok::<_, io::Error>(piece.clone())
        }))
    };
    let router = Router::new()
        .route("/", get(|| async { "here" }))
        .route("/endless", get(endless));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = CancellationToken::new();
    tokio::spawn(answer(listener, router, limits, stop.clone()));
    (address, stop)
}

async fn say(address: std::net::SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    stream.write_all(text.as_bytes()).await.expect("is taken");
    stream
}

/// Everything until the server closes; a reset is an end too.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let read = stream.read_to_end(&mut all);
    let read = tokio::time::timeout(Duration::from_secs(20), read).await;
    assert!(read.is_ok(), "it is never closed");
    all
}

const WHOLE: &str = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
const HALF: &str = "GET / HTTP/1.1\r\nhost: local";

fn limits() -> Limits {
    Limits {
        connections: 4,
        header: Duration::from_secs(30),
        stall: Duration::from_secs(30),
    }
}

#[tokio::test]
async fn half_a_header_is_waited_for_and_no_longer() {
    let header = Duration::from_millis(200);
    let (address, stop) = start(Limits { header, ..limits() }).await;
    let began = Instant::now();
    let mut slow = say(address, HALF).await;
    rest(&mut slow).await;
    assert!(began.elapsed() >= header);
    let answer = rest(&mut say(address, WHOLE).await).await;
    assert!(answer.ends_with(b"here"));
    stop.cancel();
}

#[tokio::test]
async fn those_who_ask_nothing_make_room_for_those_who_ask() {
    let (address, stop) = start(limits()).await;
    // One has asked, and stays.
    let kept = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut known = say(address, kept).await;
    let mut first = [0; 12];
    known.read_exact(&mut first).await.expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(say(address, HALF).await);
    }
    let answer = rest(&mut say(address, WHOLE).await).await;
    assert!(answer.ends_with(b"here"));
    rest(&mut idle[0]).await;
    known.write_all(WHOLE.as_bytes()).await.expect("is taken");
    assert!(rest(&mut known).await.ends_with(b"here"));
    stop.cancel();
}

#[tokio::test]
async fn an_answer_that_nobody_reads_ends() {
    let stall = Duration::from_millis(300);
    let one = Limits {
        connections: 1,
        stall,
        ..limits()
    };
    let (address, stop) = start(one).await;
    let asks = "GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut deaf = say(address, asks).await;
    // It has asked, so it makes room for nobody.
    let mut first = [0; 12];
    deaf.read_exact(&mut first).await.expect("an answer");
    // The only seat is free again when the answer was given up.
    let answer = rest(&mut say(address, WHOLE).await).await;
    assert!(answer.ends_with(b"here"));
    drop(deaf);
    stop.cancel();
}

#[tokio::test]
async fn an_answer_that_is_read_slowly_goes_on() {
    let stall = Duration::from_secs(1);
    let (address, stop) = start(Limits { stall, ..limits() }).await;
    let asks = "GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut slow = say(address, asks).await;
    let mut piece = vec![0; 4 << 20];
    for _ in 0..8 {
        tokio::time::sleep(stall / 5).await;
        slow.read_exact(&mut piece).await.expect("it goes on");
    }
    stop.cancel();
}

#[tokio::test]
async fn a_server_that_stops_ends_what_is_under_way() {
    let (address, stop) = start(limits()).await;
    let mut open = say(address, "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut first = [0; 12];
    open.read_exact(&mut first).await.expect("an answer");
    stop.cancel();
    rest(&mut open).await;
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(20), refused).await;
    assert!(refused.is_ok(), "it still listens");
}

/// Feeds keep their connections for hours: however many ask for one, others find a connection.
#[test]
fn feeds_leave_most_connections_to_others() {
    let connections = Limits::default().connections as usize;
    assert!(web::FEEDS_MAX * 2 <= connections);
}
