//! What the control plane of the tests sends back.

use std::io::Write;
use std::net::TcpStream;

use flate2::write::GzEncoder;
use rustls::{ServerConnection, StreamOwned};

pub type Tls = StreamOwned<ServerConnection, TcpStream>;

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn answer(tls: &mut Tls, status: u16, fields: &str, body: &[u8]) -> std::io::Result<()> {
    let head =
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{fields}content-length: {}\r\n\r\n", body.len());
    tls.write_all(head.as_bytes())?;
    tls.write_all(body)?;
    tls.conn.send_close_notify();
    tls.flush()
}
