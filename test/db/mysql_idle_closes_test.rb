# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/refusals"
require "support/scripted_mysql"

# Closes of statements that wait for the next request, where the socket takes nothing or little, or where the thread
# that sends them without a request cannot start in peace: each reaches the server once, before the next request.
class MySQLIdleClosesTest < Minitest::Test
  include LoopHelpers
  include Refusals

  STATEMENTS = 20

  SENT_IN_PIECES = <<~RUBY
    require "fiddle"
    require "heddle/db"
    library = Fiddle.dlopen(nil)
    most = Fiddle::Function.new(library["send_at_most"], [Fiddle::TYPE_LONG], Fiddle::TYPE_VOID)
    refused = Fiddle::Function.new(library["refused_sends"], [], Fiddle::TYPE_LONG)
    await = ->(&condition) { sleep(0.01) until condition.call }
    db = Heddle::DB.connect(ARGV.first, statement_cache: :never, timeout: 20)
    statements = Array.new(#{STATEMENTS}) { |n| db.prepare("select \#{n}") }
    most.call(0)
    statements.each(&:close)
    await.call { refused.call > 0 }
    puts db.driver.closes
  RUBY

  def test_the_next_request_takes_the_closes_along_that_a_full_socket_refused
    out, packets = serve(<<~RUBY)
      #{SENT_IN_PIECES}
      most.call(7)
      db.driver.command("after")
      puts db.driver.closes
    RUBY
    assert_closes_went_first(out, packets)
  end

  def test_a_close_that_was_sent_in_part_is_continued_by_the_next_request
    out, packets = serve(<<~RUBY)
      #{SENT_IN_PIECES}
      before = db.driver.stream.statistics[:bytes_sent]
      most.call(5)
      await.call { db.driver.stream.statistics[:bytes_sent] > before }
      most.call(-1)
      db.driver.command("after")
      puts db.driver.closes
    RUBY
    assert_closes_went_first(out, packets)
  end

  def test_closes_without_a_next_request_are_sent_once_the_socket_takes_them
    out, packets = serve("#{SENT_IN_PIECES}\nmost.call(-1)\nawait.call { db.driver.closes.zero? }\nputs 'sent'")
    assert_equal %W[#{STATEMENTS} sent], out
    assert_equal closes, packets.sort
  end

  # The thread that sends them starts at the first close. Ruby lets interrupts in there.
  {raise: "Thread.current.raise(Interrupted)", kill: "Thread.current.kill"}.each do |name, interrupt|
    define_method("test_a_thread_that_is_interrupted_while_the_sending_one_starts_by_#{name}") do
      out, packets = serve(<<~RUBY)
        require "heddle/db"
        Interrupted = Class.new(Exception)
        db = Heddle::DB.connect(ARGV.first, statement_cache: :never, timeout: 20)
        statement = db.prepare("select 1")
        sleep(0.01) while Thread.list.any? { |thread| thread.name == "heddle deadlines" }
        thread = Thread.new do
          interrupts = TracePoint.new(:c_call) { |point| #{interrupt} if point.method_id == :name= }
          interrupts.enable(target_thread: Thread.current) { statement.close }
          :lost
        rescue Interrupted
          :interrupted
        end
        p thread.value
        db.driver.command("after")
        p db.driver.closes
      RUBY
      assert_equal [(name == :raise) ? ":interrupted" : "nil", "0"], out
      assert_equal [[:close, 1], [:query, "after"]], packets
    end
  end

  private

  def assert_closes_went_first(out, packets)
    assert_equal %W[#{STATEMENTS} 0], out
    assert_equal closes, packets[0...-1].sort
    assert_equal [:query, "after"], packets.last
  end

  def closes = (1..STATEMENTS).map { |id| [:close, id] }

  # Runs the code in a child, whose sends can be limited. Returns the lines of its output, and what the server got.
  def serve(code)
    skip "the calls are replaced in Linux's way" unless linux?
    packets = []
    out = nil
    ScriptedMySQL.play(->(peer) { answer(peer, packets) }) do |server|
      compiled("short_sends.c", "-shared", "-fPIC", "-ldl") do |library|
        preload = [ENV["LD_PRELOAD"], library].compact.join(" ")
        code = code.gsub("ARGV.first", server.url.inspect) + "\ndb.close\n"
        out = assert_child(code, env: {"LD_PRELOAD" => preload}, timeout: 50, gems: true)
      end
      wait_until { packets.last == [:quit] }
    end
    [out.lines(chomp: true), packets[0...-1]]
  end

  def answer(peer, packets)
    prepared = 0
    peer.welcome
    until packets.last == [:quit]
      _, payload = peer.read
      case payload.getbyte(0)
      when 0x16 then peer.write(1, "\0".b + [prepared += 1, 0, 0].pack("Vvv") + "\0\0\0")
      when 0x19 then packets << [:close, payload.unpack1("xV")]
      when 0x03 then (packets << [:query, payload.byteslice(1..)]) && peer.ok
      when 0x01 then packets << [:quit]
      else packets << [:unexpected, payload]
      end
    end
  end
end
