//! A connection whose other end has to take what is sent to it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// What a reader has to take in one patience to be given another: one that takes a byte a minute is as bad as none.
const PROGRESS: usize = 64 << 10;

/// A stream whose writes fail when they wait too long.
pub(super) struct Patient {
    stream: TcpStream,
    patience: Duration,
    /// Since a write had to wait: when it is too late, and what was taken since.
    waiting: Option<(Pin<Box<Sleep>>, usize)>,
}

impl Patient {
    pub(super) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            waiting: None,
        }
    }

    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        asked: usize,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => {
                let patience = self.patience;
                let (late, _) = self
                    .waiting
                    .get_or_insert_with(|| (Box::pin(sleep(patience)), 0));
                late.as_mut().poll(context).map(|()| {
                    let why = "the client does not read its answer";
                    Err(io::Error::new(io::ErrorKind::TimedOut, why))
                })
            }
            Poll::Ready(Ok(count)) => {
                if let Some((_, taken)) = &mut self.waiting {
                    *taken += count;
                    if count == asked || *taken >= PROGRESS {
                        self.waiting = None;
                    }
                }
                Poll::Ready(Ok(count))
            }
            failed => failed,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, written, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        let asked = pieces.iter().map(|piece| piece.len()).sum();
        self.wrote(context, written, asked)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
