-- Brings a limit up to date, and gives free permits to those who have waited longest.
--
-- KEYS: held    sorted set of permits by the time at which they expire
--       queue   sorted set of waiting permits by their tickets
--       seen    sorted set of waiting permits by the time at which they expire
--       starts  sorted set of permits by the time of their start, in the last second
--       ticket  the last ticket
--       clock   the time of the last call
-- ARGV: the caller's token; concurrent and per_second, or 0; the lease in microseconds; then three lists, each after
--       its length: permits to release, held permits to renew, permits that wait.
-- Permits are named TOKEN:NUMBER. Answers the microseconds until the next permit may be free, or -1, and then the
-- caller's permits that are granted. Other callers are told through the channel of their token.
local held, queue, seen, starts, ticket, clock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, concurrent, per_second, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local index = 5
local function list()
  local length = tonumber(ARGV[index])
  local first = index + 1
  index = first + length
  local items = {}
  for i = first, index - 1 do items[#items + 1] = ARGV[i] end
  return items
end
local released, renewed, waiting = list(), list(), list()

local parts = redis.call('TIME')
local now = parts[1] * 1000000 + parts[2]
local function time(value) return string.format('%.0f', value) end

-- A clock that was set back, or that of another server: no permit may wait until it has caught up.
local back = tonumber(redis.call('GET', clock) or 0) - now
if back > 0 then
  for _, key in ipairs({held, seen, starts}) do
    local permits = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #permits, 2 do redis.call('ZADD', key, time(permits[i + 1] - back), permits[i]) end
  end
end
redis.call('SET', clock, time(now))

for _, permit in ipairs(released) do
  redis.call('ZREM', held, permit)
  redis.call('ZREM', queue, permit)
  redis.call('ZREM', seen, permit)
end
for _, permit in ipairs(renewed) do redis.call('ZADD', held, time(now + lease), permit) end
redis.call('ZREMRANGEBYSCORE', held, '-inf', time(now))
for _, permit in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', time(now))) do
  redis.call('ZREM', queue, permit)
  redis.call('ZREM', seen, permit)
end

local answer = {-1}
for _, permit in ipairs(waiting) do
  if redis.call('ZSCORE', held, permit) then -- granted, and the message was lost
    redis.call('ZADD', held, time(now + lease), permit)
    answer[#answer + 1] = permit
  else
    if not redis.call('ZSCORE', queue, permit) then redis.call('ZADD', queue, redis.call('INCR', ticket), permit) end
    redis.call('ZADD', seen, time(now + lease), permit)
  end
end

local free, rate = math.huge, math.huge
if concurrent > 0 then free = concurrent - redis.call('ZCARD', held) end
if per_second > 0 then
  redis.call('ZREMRANGEBYSCORE', starts, '-inf', time(now - 1000000))
  rate = per_second - redis.call('ZCARD', starts)
end
while free > 0 and rate > 0 do
  local permit = redis.call('ZRANGE', queue, 0, 0)[1]
  if not permit then break end
  -- Not a lease from now: the process may have died while the permit waited.
  local expiry = redis.call('ZSCORE', seen, permit) or time(now + lease)
  redis.call('ZREM', queue, permit)
  redis.call('ZREM', seen, permit)
  redis.call('ZADD', held, expiry, permit)
  if per_second > 0 then redis.call('ZADD', starts, time(now), permit) end
  local owner = string.match(permit, '^(.*):')
  if owner == token then
    answer[#answer + 1] = permit
  else
    redis.call('PUBLISH', 'heddle:limit:' .. owner, permit)
  end
  free, rate = free - 1, rate - 1
end
if redis.call('ZCARD', queue) > 0 then
  if free <= 0 then -- the holder may have died
    local first = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
    answer[1] = math.max(0, math.ceil(first[2] - now))
  else
    local starting = redis.call('ZRANGE', starts, -per_second, -per_second, 'WITHSCORES')
    answer[1] = math.max(0, math.ceil(starting[2] + 1000001 - now))
  end
end
local kept = math.ceil(math.max(lease, 1000000) / 1000) * 2
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, kept) end
return answer
