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
# HEDDLE_STRIKER_SECONDS: how long each test strikes; minutes find more. HEDDLE_STRIKER_SEED: as a failure printed it.
class DescriptorOwnersTest < Minitest::Test
  include Refusals

  SECONDS = Float(ENV.fetch("HEDDLE_STRIKER_SECONDS", "2"))
  # A busy machine takes longer to start, and to serve a struck operation.
  PATIENCE = SECONDS + 50

  def test_operations_that_connect
    strike("new,open,address,own,socket_tcp", "raise,kill,trap")
  end

  def test_operations_of_net_http
    strike("http,http_name,https,upload", "raise,kill,timeout")
  end

  def test_operations_of_streams_and_clients
    strike("stream,stream_tls,stream_unix,memcached,database", "raise,kill,deadline,cancel")
  end

  def test_operations_of_loops_guards_and_processes
    strike("run,scheduler,offload,guard,child,fork,processes", "raise,kill,trap")
  end

  # Wherever Ruby's methods are in C.
  def test_strikes_from_a_thread_at_any_time
    strike("new,open,socket_tcp,http,stream,run", "stray")
  end

  private

  def strike(operations, ways)
    compiled("watched_closes.c", "-shared", "-fPIC") do |library|
      closes = "#{library}.closes"
      env = {"LD_PRELOAD" => [ENV["LD_PRELOAD"], library].compact.join(" "), "WATCHED_CLOSES" => closes}
      seed = ENV.fetch("HEDDLE_STRIKER_SEED") { rand(100_000).to_s }
      program = File.join(__dir__, "../support/striker.rb")
      command = ["timeout", "-s", "KILL", PATIENCE.to_s, RbConfig.ruby, "-W0", "-I#{LoopHelpers::ROOT}/lib", program]
      out, status = Open3.capture2e(env, *command, SECONDS.to_s, seed, operations, ways)
      assert_predicate status, :success?, "#{out.lines.last(40).join}\n#{File.read(closes) if File.exist?(closes)}"
      assert_operator out[/^(\d+) strikes/, 1].to_i, :>, 20, out
      puts "#{name} on Ruby #{RUBY_VERSION}, #{backend}: #{out[/^\d+ strikes.*/]}" if ENV.key?("HEDDLE_STRIKER_SECONDS")
      refute_path_exists closes,
        "a number was closed that was no descriptor:\n#{out}#{File.read(closes) if File.exist?(closes)}"
    end
  end
end
