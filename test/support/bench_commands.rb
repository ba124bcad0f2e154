# frozen_string_literal: true

require "heddle/lab"
require "support/fresh_clone"

# For tests that run each bench that the documents name in a fresh clone, with fewer rounds. CommandsTest compiles such
# a clone; here it has this checkout's compiled code, and each bench runs with one model where its report does not
# need two.
module BenchCommands
  include FreshClone

  COMMANDS = FreshClone::COMMANDS.grep(/heddle bench/).freeze
  # A file with all of them would take three times as long as any other.
  OF_HTTP = /bench (?:delay|http|s3)/
  OF_RAILS = /bench rails/
  OF_DATABASES = /bench (?:db|postgresql|sqlite|odbc|memcached|deadlines|stall|doctor)/

  # Options that make a bench quick, by how its command begins. The report has a line for the first of the models.
  QUICK = {
    "bench delay --processes" => "--requests 20 --delays 0 --models heddle",
    "bench delay" => "--requests 20 --delays 0 --models heddle,async",
    "bench scheduler" => "--scale 0.01 --operations queue --models heddle",
    "bench executor" => "--scale 0.01 --operations empty --models heddle:10",
    "bench jobs" => "--scale 0.01 --jobs empty --models fibers:10",
    "bench rails" => "--scale 0.01 --pages empty --models fibers",
    "bench async" => "--scale 0.01 --operations empty --models heddle",
    "bench deadline_cost" => "--scale 0.01 --models deadline",
    "bench stream" => "--scale 0.01 --models stream",
    "bench deadlines" => "--models heddle --clients redis-client",
    "bench memcached" => "--scale 0.01 --models heddle --operations get --no-system-calls",
    "bench db" => "--scale 0.01 --models heddle --operations new",
    "bench postgresql" => "--scale 0.01 --models heddle --operations new",
    "bench sqlite" => "--scale 0.01 --models heddle --operations kept",
    "bench odbc" => "--scale 0.01 --models heddle --operations kept",
    "bench stall" => "--scale 0.01 --models one_flight",
    "bench names" => "--models heddle --deadline 10",
    "bench s3" => "--requests 5 --delay 1 --models pool:5",
    "bench http" => "--size 1000 --models heddle"
  }.freeze
  # Libraries that bin/heddle does not install: it says that bin/setup --all does.
  MORE_GEMS = /bench (?:s3|jobs|rails|executor|deadlines|sqlite)/

  module ClassMethods
    # Defines a test for each command.
    def try_each(commands)
      commands.each do |command|
        define_method(:"test_#{command.gsub(/\W+/, "_")}") { bench(command.delete_prefix("bin/heddle ")) }
      end
    end
  end

  def self.included(test)
    test.extend(ClassMethods)
    test.hard_deadline 240 # without this checkout's compiled code, the first compiles
  end

  def setup
    super
    FreshClone.built
  end

  private

  def bench(command)
    if command == "bench doctor"
      return assert_match(/^  stall one_flight: heddle/, run_there("bin/heddle #{command} stall"))
    end

    set_up if command.match?(MORE_GEMS)
    _, options = QUICK.find { |start, _| command.start_with?(start) } || flunk("QUICK does not know #{command}")
    options = "--sites local #{options}" if command.start_with?("bench http") && !command.include?("://")
    with_page_for(command) do |asked|
      # Some have a time limit that a busy machine may exceed.
      out = run_there("bin/heddle #{asked} --rounds 1 --no-twins #{options}", attempts: 2)
      assert_match(/^#{options[/--models ([^, ]+)/, 1]}: .*heddle/, out)
      refute_match(/What went wrong/, out)
    end
  end

  # A page of this machine instead of one on another host.
  def with_page_for(command)
    return yield(command.sub("bench/results", "results")) unless command.include?("https://example.com/file")

    Heddle::Lab::LoadServer.start do |server|
      yield command.sub("https://example.com/file", "http://127.0.0.1:#{server.port}/b/1000")
    end
  end
end
