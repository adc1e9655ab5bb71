//! A connection that sends prepared HTTP/1.1 requests, so that the load generator takes little of the machine that
//! it shares with the product.

use anyhow::{Context, Result, bail};
use headwater::secret::Secret;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest head that is read.
const HEAD_MAX_BYTES: usize = 64 * 1024;

/// One kept-alive connection.
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    head: String,
}

impl Wire {
    /// Connects.
    pub async fn connect(address: SocketAddr, token: &Secret) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let head = format!("Host: {address}\r\nAuthorization: Bearer {}\r\n", token.expose());
        Ok(Self { stream, buffer: Vec::new(), head })
    }

    /// Sends a request with a JSON body; gives the status and the body of the answer.
    pub async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        let head_end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            if self.buffer.len() > HEAD_MAX_BYTES {
                bail!("the head of an answer is too long");
            }
            self.fill().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        if head.lines().any(|line| line == "transfer-encoding: chunked") {
            self.buffer.drain(..head_end);
            return Ok((status, self.chunks().await?));
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map_or(Ok(0), |value| value.trim().parse::<usize>())?;
        while self.buffer.len() < head_end + length {
            self.fill().await?;
        }
        let body = self.buffer[head_end..head_end + length].to_vec();
        self.buffer.drain(..head_end + length);
        Ok((status, body))
    }

    /// The body of an answer in chunks (RFC 9112, section 7.1); nobody sends trailers here.
    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                match find(&self.buffer, b"\r\n") {
                    Some(at) => break at,
                    None => self.fill().await?,
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[..line])?, 16)?;
            let (start, end) = (line + 2, line + 2 + size);
            while self.buffer.len() < end + 2 {
                self.fill().await?;
            }
            body.extend_from_slice(&self.buffer[start..end]);
            self.buffer.drain(..end + 2);
            if size == 0 {
                return Ok(body);
            }
        }
    }

    async fn fill(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the connection was closed");
        }
        Ok(())
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
