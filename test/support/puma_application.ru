# frozen_string_literal: true

require "digest"

# What the tests of Puma with plugin :heddle ask for, by path. Files of these names tell the tests what has happened.
class Application
  def call(env)
    query = env["QUERY_STRING"].split("&").to_h { |pair| pair.split("=", 2) }
    public_send(env["PATH_INFO"].delete_prefix("/").then { |name| name.empty? ? "index" : name }, env, query)
  end

  def index(_, _) = text("on #{Fiber.scheduler.class} #{Process.pid}")

  # Computes until there is a file.
  def works(_, query)
    File.write("works", "")
    until File.exist?("go")
      compute(0.003)
      sleep(0) if query["turns"]
    end
    text(Process.pid.to_s)
  end

  # Waits several times, and answers with what it has kept in a local of its fiber, and who has been there before.
  def waits(_, query)
    File.write(query["mark"], "#{query["id"]}\n", mode: "a") if query["mark"]
    before = Thread.current[:last]
    Thread.current[:last] = query["id"]
    query.fetch("count", "3").to_i.times { sleep(query.fetch("seconds", "0.05").to_f) }
    text("#{Thread.current[:last]} after #{before.inspect} in #{Process.pid}")
  end

  # Waits for a file.
  def held(_, query)
    File.write("began-#{query["id"]}", "")
    sleep(0.005) until File.exist?(query.fetch("until", "go"))
    text("held #{query["id"]}")
  end

  def computes(_, query)
    File.write("computes", "")
    compute(query.fetch("seconds").to_f)
    text("computed")
  ensure
    File.write("computed", $!.class.to_s)
  end

  # Leaves the process that many memory maps: a mapping of which every other page may be read is a map for each page.
  def fills(_, query)
    require "fiddle"
    void, long, int = Fiddle::TYPE_VOIDP, Fiddle::TYPE_LONG, Fiddle::TYPE_INT
    mmap = Fiddle::Function.new(Fiddle::Handle::DEFAULT["mmap"], [void, long, int, int, int, long], void)
    mprotect = Fiddle::Function.new(Fiddle::Handle::DEFAULT["mprotect"], [void, long, int], int)
    maps = File.foreach("/proc/self/maps").count + query["left"].to_i
    pairs = (File.read("/proc/sys/vm/max_map_count").to_i - maps) / 2
    first = mmap.call(nil, 8192 * pairs, 0, 0x4022, -1, 0) # PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    pairs.times { |pair| mprotect.call(first + 8192 * pair, 4096, 1) }
    text("filled")
  end

  # Blocks the thread: Ruby asks no scheduler.
  def locks(_, _)
    File.open("lock", "r+") do |lock|
      File.write("locks", "")
      lock.flock(File::LOCK_EX)
    end
    text("locked")
  end

  def sleeps(_, query)
    File.write("sleeps-#{query["id"]}", "")
    sleep
  ensure
    File.write("slept-#{query["id"]}", $!.class.to_s)
  end

  def upload(env, _)
    body = env["rack.input"].read
    text("#{body.bytesize} #{Digest::SHA256.hexdigest(body)}")
  end

  def large(_, query) = text("x" * query.fetch("size").to_i)

  def fails(_, _) = raise("a fault of the application")

  def hijacks(env, _)
    io = env["rack.hijack"].call
    Heddle.spawn do
      io.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
      3.times { |i| sleep(0.02) && io.write("data: #{i}\n\n") }
    ensure
      io.close
    end
    [200, {}, []]
  end

  # Never ends by itself.
  def subscribes(env, query)
    io = env["rack.hijack"].call
    Heddle.spawn do
      io.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
      loop { io.write("data: tick\n\n") && sleep(0.02) }
    rescue SystemCallError, IOError => error
      File.write("left-#{query["id"]}", error.class.name)
    ensure
      File.write("unsubscribed-#{query["id"]}", $!.class.to_s)
      io.close
    end
    [200, {}, []]
  end

  def hijacks_partly(_, _)
    body = lambda do |io|
      3.times { |i| sleep(0.02) && io.write("data: #{i}\n\n") }
    ensure
      io.close
    end
    [200, {"connection" => "close", "rack.hijack" => body}, []]
  end

  Stream = Struct.new(:name, :count) do
    def each
      count.times { |i| (i == 0 || sleep(0.02)) && yield("data: #{i}\n\n") }
    ensure
      File.write("streamed-#{name}", $!.class.to_s)
    end
  end

  def streams(_, query) = [200, {"content-type" => "text/event-stream"}, Stream.new(query["id"], query["count"].to_i)]

  # Sends one event, and then waits for what never comes.
  Waiting = Struct.new(:name, :wait) do
    def each
      yield("data: first\n\n")
      (wait == "queue") ? Thread::Queue.new.pop : sleep
    ensure
      File.write("waited-#{name}", "#{$!.class} #{Process.clock_gettime(Process::CLOCK_MONOTONIC)}")
    end

    def close
      File.write("closed-#{name}", "")
    end
  end

  def waits_in_a_stream(_, query)
    [200, {"content-type" => "text/event-stream"}, Waiting.new(query["id"], query["in"])]
  end

  def hints(env, _)
    env["rack.early_hints"].call("link" => "</style.css>; rel=preload")
    sleep(0.02)
    text("hinted")
  end

  def io_bound(env, _)
    env["puma.mark_as_io_bound"]&.call
    text("marked")
  end

  def server(_, _) = text(Puma::Server.current.class.name)

  def kills(_, _)
    Thread.current.kill
  end

  def after(env, _)
    (env["rack.after_reply"] ||= []) << -> { sleep(0.02) && File.write("after", "") }
    text("replied")
  end

  private

  def compute(seconds)
    finish = now + seconds
    nil while now < finish
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def text(body) = [200, {"content-type" => "text/plain"}, [body]]
end

run Application.new
