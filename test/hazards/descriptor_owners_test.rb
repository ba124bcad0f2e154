# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/refusals"
require "open3"

runs_on rubies: :ends, backends: :one, except: %i[portable debug], short: false

# A number that changes hands (from connect(2) to a Socket, from a descriptor to its duplicate) has one owner at every
# moment at which an exception can arrive. With two owners, the second close hits whichever file has the number by
# then; with none, it stays open.
#
# HEDDLE_INTERRUPTER_SECONDS: how long each test interrupts; minutes find more. HEDDLE_INTERRUPTER_SEED: as a failure
# printed it.
class DescriptorOwnersTest < Minitest::Test
  include Refusals

  SECONDS = Float(ENV.fetch("HEDDLE_INTERRUPTER_SECONDS", "2"))
  # A busy machine takes longer to start, and to serve an interrupted operation.
  PATIENCE = SECONDS + 150
  hard_deadline PATIENCE + 10

  def test_operations_that_connect
    interrupt("new,open,address,own,socket_tcp", "raise,kill,trap")
  end

  def test_operations_of_net_http
    interrupt("http,http_name,https,upload", "raise,kill,timeout")
  end

  def test_operations_of_streams_and_clients
    interrupt("stream,stream_tls,stream_unix,memcached,database", "raise,kill,deadline,cancel")
  end

  def test_operations_of_loops_guards_and_processes
    interrupt("run,scheduler,offload,guard,child,fork,processes", "raise,kill,trap")
  end

  # Wherever Ruby's methods are in C.
  def test_interrupts_from_a_thread_at_any_time
    interrupt("new,open,socket_tcp,http,stream,run", "stray")
  end

  private

  def interrupt(operations, ways)
    compiled("watched_closes.c", "-shared", "-fPIC") do |library|
      closes = "#{library}.closes"
      env = {"LD_PRELOAD" => [ENV["LD_PRELOAD"], library].compact.join(" "), "WATCHED_CLOSES" => closes}
      seed = ENV.fetch("HEDDLE_INTERRUPTER_SEED") { rand(100_000).to_s }
      program = File.join(__dir__, "../support/interrupter.rb")
      command = ["timeout", "-s", "KILL", stretched(PATIENCE).to_s, RbConfig.ruby, "-W0", "-I#{LoopHelpers::ROOT}/lib",
        program]
      out, status = Open3.capture2e(env, *command, SECONDS.to_s, seed, operations, ways)
      assert_predicate status, :success?, "#{out.lines.last(40).join}\n#{File.read(closes) if File.exist?(closes)}"
      rounds = out.match(/^\d+ interrupts in (?<hit>\d+) of (?<all>\d+) rounds/)
      assert_equal rounds[:all], rounds[:hit], out
      counts = out[/^\d+ interrupts.*/]
      puts "#{name} on Ruby #{RUBY_VERSION}, #{backend}: #{counts}" if ENV.key?("HEDDLE_INTERRUPTER_SECONDS")
      refute_path_exists closes,
        "a number was closed that was no descriptor:\n#{out}#{File.read(closes) if File.exist?(closes)}"
    end
  end
end
