-- Brings a limit up to date, and gives free places to those who have waited longest.
--
-- KEYS: held    sorted set of places by the time at which they expire
--       queue   sorted set of waiting places by their tickets
--       seen    sorted set of waiting places by the time at which they expire
--       starts  sorted set of places by the time of their start, in the last second
--       ticket  the last ticket
--       clock   the time of the last call
-- ARGV: the caller's token; concurrent and per_second, or 0; the lease in microseconds; then three lists, each after
--       its length: places to release, held places to renew, places that wait.
-- Places are named TOKEN:NUMBER. Answers the microseconds until the next place may be free, or -1, and then the
-- caller's places that are granted. Other callers are told through the channel of their token.
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

-- A clock that was set back, or that of another server: no place may wait until it has caught up.
local back = tonumber(redis.call('GET', clock) or 0) - now
if back > 0 then
  for _, key in ipairs({held, seen, starts}) do
    local places = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #places, 2 do redis.call('ZADD', key, time(places[i + 1] - back), places[i]) end
  end
end
redis.call('SET', clock, time(now))

for _, place in ipairs(released) do
  redis.call('ZREM', held, place)
  redis.call('ZREM', queue, place)
  redis.call('ZREM', seen, place)
end
for _, place in ipairs(renewed) do redis.call('ZADD', held, time(now + lease), place) end
redis.call('ZREMRANGEBYSCORE', held, '-inf', time(now))
for _, place in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', time(now))) do
  redis.call('ZREM', queue, place)
  redis.call('ZREM', seen, place)
end

local answer = {-1}
for _, place in ipairs(waiting) do
  if redis.call('ZSCORE', held, place) then -- granted, and the message was lost
    redis.call('ZADD', held, time(now + lease), place)
    answer[#answer + 1] = place
  else
    if not redis.call('ZSCORE', queue, place) then redis.call('ZADD', queue, redis.call('INCR', ticket), place) end
    redis.call('ZADD', seen, time(now + lease), place)
  end
end

local free, rate = math.huge, math.huge
if concurrent > 0 then free = concurrent - redis.call('ZCARD', held) end
if per_second > 0 then
  redis.call('ZREMRANGEBYSCORE', starts, '-inf', time(now - 1000000))
  rate = per_second - redis.call('ZCARD', starts)
end
while free > 0 and rate > 0 do
  local place = redis.call('ZRANGE', queue, 0, 0)[1]
  if not place then break end
  -- Not a lease from now: the process may have died while the place waited.
  local expiry = redis.call('ZSCORE', seen, place) or time(now + lease)
  redis.call('ZREM', queue, place)
  redis.call('ZREM', seen, place)
  redis.call('ZADD', held, expiry, place)
  if per_second > 0 then redis.call('ZADD', starts, time(now), place) end
  local owner = string.match(place, '^(.*):')
  if owner == token then
    answer[#answer + 1] = place
  else
    redis.call('PUBLISH', 'heddle:limit:' .. owner, place)
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
