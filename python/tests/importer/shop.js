import http from 'k6/http';
import { check, group, sleep } from 'k6';
import { randomIntBetween } from 'https://jslib.k6.io/k6-utils/1.4.0/index.js';
export const options = {
  stages: [{ duration: '2s', target: 10 }, { duration: '3s', target: 10 }, { duration: '1s', target: 0 }],
  thresholds: { http_req_duration: ['p(95)<500', 'avg<200'], http_req_failed: ['rate<0.01'] },
};
const BASE = __ENV.BASE || 'http://127.0.0.1:8080';
export default function () {
  const res = http.get(`${BASE}/`, { headers: { 'X-Test': 'k6' } });
  check(res, { 'is 200': (r) => r.status === 200 });
  sleep(randomIntBetween(1, 2) * 0.1);
  group('post', function () {
    const r = http.post(`${BASE}/items`, JSON.stringify({ name: 'x{y}', n: 3 }), { headers: { 'Content-Type': 'application/json' } });
    const id = r.json('id');
    http.get(`${BASE}/items/${id}`);
  });
  sleep(0.5);
}
