"""What the runtime costs on a cached hit: one worker on one core, wrk on the other; 1 KiB; interleaved runs.
Rates are medians. Where other work shares the machine, the least processor time a request took is the steadier number.

`bare` is proxy_cache alone. `hand` is what an administrator would write by hand for one site with the same features (limits, log,
headers, key), as far as plain nginx can: it has no Age; `opened` is that with open_file_cache,
which the runtime has too. Limits count and do not refuse (dry run): wrk is one client.
"""
import json
import os
import re
import statistics
import subprocess
import time

from harness import STANDARD, domain_of, free_ports, get, origin_of

SECONDS = int(os.environ.get("BENCH_SECONDS", "1"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "15"))
# What a web server sends with a static file.
HEADERS = {"Server": "Apache", "Date": "{now}", "Last-Modified": "{now-100000}", "ETag": '"61b-5c1f2c8b4b1c0"', "Accept-Ranges": "bytes",
           "Cache-Control": "max-age=3600", "Content-Type": "text/html; charset=utf-8"}
DRY = "limit_req_dry_run on; limit_conn_dry_run on;\n"

PLAIN = """
daemon off; worker_processes 1; worker_cpu_affinity 01; pid run/plain.pid; error_log log/plain.log error; pcre_jit on;
events { worker_connections 8192; }
http {
  client_body_temp_path run/b1; proxy_temp_path run/b2; fastcgi_temp_path run/b3; uwsgi_temp_path run/b4; scgi_temp_path run/b5;
  server_tokens off; tcp_nopush on; keepalive_timeout 30s; keepalive_requests 1000; access_log off;
  proxy_cache_path plaincache levels=1:2 keys_zone=p:32m max_size=1g inactive=1h use_temp_path=off;
  upstream o { server 127.0.0.1:%(origin)d; keepalive 8; }
  server { listen 127.0.0.1:%(source)d; location / { default_type text/html; return 200 "%(body)s"; } }
  server { listen 127.0.0.1:%(bare)d; location / { proxy_pass http://o; proxy_http_version 1.1; proxy_set_header Connection "";
    proxy_cache p; proxy_cache_key "bare$request_uri"; } }

  map $host $site { default ""; ~^(a|miss)[.]example[.]com$ "0195d2f0-aaaa-7000-8000-000000000001:0:"; }
  limit_req_zone $site$binary_remote_addr zone=r:16m rate=100r/s;
  limit_conn_zone $site$binary_remote_addr zone=c:8m;
  limit_conn_zone $site zone=d:4m;
  limit_req_dry_run on; limit_conn_dry_run on; limit_req_log_level info; limit_conn_log_level info;
  set_real_ip_from 127.0.9.0/24; real_ip_header X-Forwarded-For; real_ip_recursive on;
  map $upstream_cache_status $cs { HIT "edge; hit"; MISS "edge; fwd=uri-miss"; default "edge; fwd=stale"; }
  log_format access escape=json '{"at":$msec,"domain":"$site","host":"$host","method":"$request_method","path":"$uri",'
    '"status":$status,"sent":$bytes_sent,"seconds":$request_time,"cache":"$upstream_cache_status","client":"$remote_addr",'
    '"scheme":"$scheme","protocol":"$server_protocol","agent":"$http_user_agent"}';
  server { listen 127.0.0.1:%(hand)d; access_log log/hand.json access buffer=64k flush=1s;
    if ($site = "") { return 421; }
    location /miss { limit_req zone=r burst=200 nodelay; limit_conn c 64; limit_conn d 512;
      proxy_pass http://127.0.0.1:%(source)d; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
      add_header Cache-Status $cs always; }
    location / { limit_req zone=r burst=200 nodelay; limit_conn c 64; limit_conn d 512;
      proxy_pass http://o; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_cache p; proxy_cache_key "$site$scheme://$host$request_uri"; proxy_cache_lock on; proxy_cache_revalidate on;
      proxy_cache_background_update on; proxy_cache_bypass $http_authorization $http_upgrade; proxy_no_cache $http_authorization $http_upgrade;
      proxy_ignore_headers X-Accel-Expires X-Accel-Redirect; proxy_hide_header X-Internal; proxy_pass_header Date;
      add_header Cache-Status $cs always; } }
}
"""


def cpu(pid):
    """Seconds of processor time that a process has used: robust where other work shares the machine."""
    return int(open(f"/proc/{pid}/schedstat").read().split()[0]) / 1e9


def worker_of(pid):
    return int(open(f"/proc/{pid}/task/{pid}/children").read().split()[0])


def wrk(port, path, pid=None, host="a.example.com"):
    used = cpu(pid) if pid else 0
    out = subprocess.run(["taskset", "-c", "1", "wrk", "-t1", "-c32", f"-d{SECONDS}s", "-H", f"Host: {host}",
                          f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, check=True).stdout
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    total = int(re.search(r"(\d+) requests in", out)[1])
    spent = (cpu(pid) - used) * 1e6 / total if pid else 0
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), int(bad[1]) if bad else 0, spent


def run(world, report):
    bare, hand, source, opened = free_ports(4)
    cell = world.cell("bench", workers=1, http=DRY)
    cell.write("etc/main.conf", "worker_processes 1;\nworker_cpu_affinity 01;\ndaemon off;\n")
    com = domain_of("example.com", {"a.example.com": world.plain_origin()}, security=dict(STANDARD))
    off = domain_of("miss.example.com", {"miss.example.com": origin_of("origin.test", source)}, cache={"enabled": False})
    more = [domain_of(f"d{i}.test", {f"www.d{i}.test": world.plain_origin()}) for i in range(2000)]
    cell.put_base([com, off] + more)
    world.origin.tell("bench", 200, HEADERS, "x" * 1024)
    # The same by hand with open files kept, as the runtime keeps them.
    by_hand = PLAIN[PLAIN.index("  server { listen 127.0.0.1:%(hand)d;"):].rstrip().removesuffix("}")
    text = PLAIN.rstrip().removesuffix("}") + by_hand.replace("%(hand)d;", "%(opened)d; open_file_cache max=4096 inactive=20s; open_file_cache_valid 20s;") + "}\n"
    cell.write("etc/plain-bench.conf", text % {"origin": world.ports[0], "bare": bare, "hand": hand, "opened": opened, "source": source, "body": "x" * 1024})
    cell.start()
    plain = subprocess.Popen([*cell.command()[:-4], "-c", "etc/plain-bench.conf", "-e", cell.folder + "/log/plain.log"], cwd=cell.folder)
    try:
        ports = {"runtime": cell.http, "hand": hand, "bare": bare, "opened": opened}
        time.sleep(1)
        pids = {n: cell.workers()[0] if n == "runtime" else worker_of(plain.pid) for n in ports}
        for port in ports.values():
            wrk(port, "/bench/a")
        rates, costs = {n: [] for n in ports}, {n: [] for n in ports}
        for _ in range(ROUNDS):
            for name, port in ports.items():
                rate, bad, spent = wrk(port, "/bench/a", pids[name])
                report.check(f"bench {name}: all answers are good", bad == 0, bad)
                rates[name].append(rate)
                costs[name].append(spent)
        status, headers, _ = cell.request("a.example.com", "/bench/a")
        report.check("bench: it was a hit", get(headers, "Cache-Status") == "headwater; hit", headers)
        rate = {n: statistics.median(r) for n, r in rates.items()}
        cost = {n: min(c) for n, c in costs.items()}
        for n in ports:
            print(f"{n:8} {rate[n]:8.0f} requests/s {cost[n]:6.2f} us of processor a request at best, {statistics.median(costs[n]):.2f} in the middle")
        print(f"by rate:      runtime/hand {rate['runtime'] / rate['hand']:.3f} (goal >= 0.9)   runtime/bare {rate['runtime'] / rate['bare']:.3f} (goal >= 0.8)   runtime/hand with open files {rate['runtime'] / rate['opened']:.3f}")
        print(f"by processor: runtime/hand {cost['hand'] / cost['runtime']:.3f}               runtime/bare {cost['bare'] / cost['runtime']:.3f}                 runtime/hand with open files {cost['opened'] / cost['runtime']:.3f}")
        print("json " + json.dumps({"rate": rate, "microseconds": cost}))
        miss = {n: [wrk(ports[n], "/miss", pids[n], "miss.example.com") for _ in range(3)] for n in ("runtime", "hand")}
        report.check("bench: misses are good", all(b == 0 for m in miss.values() for _, b, _ in m), miss)
        costs = {n: min(c for _, _, c in m) for n, m in miss.items()}
        print(f"miss (hand's and the origin's share one process): runtime {costs['runtime']:.1f} us, hand with origin {costs['hand']:.1f} us")
    finally:
        plain.terminate()
        plain.wait()
