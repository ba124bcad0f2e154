# frozen_string_literal: true

require "test_helper"
require "support/connect_filter_helpers"
require "support/dead_network"

runs_on rubies: :ends, backends: :one

# What a filter for connects has checked is what is connected to.
class ConnectFilterAddressesTest < Minitest::Test
  include ConnectFilterHelpers
  include DeadNetworkHelpers

  # The filter changes what the name means before it allows the address.
  def test_a_name_that_means_another_address_after_the_check
    out = between(<<~RUBY, hosts: {"127.0.0.7" => ["rebound"]})
      asked = []
      Heddle.connect_filter do |address, host|
        asked << [address.ip_address, host]
        File.write("/etc/hosts", "127.0.0.1 rebound\\n")
        address.ip_address == "127.0.0.7"
      end
      ways.each do |name, way|
        File.write("/etc/hosts", "127.0.0.7 rebound\\n")
        puts name if way.call("rebound") != "127.0.0.7"
        puts name if asked != [["127.0.0.7", "rebound"]]
        asked.clear
      end
    RUBY
    assert_empty out
  end

  def test_a_refused_address_is_skipped
    out = between(<<~RUBY, hosts: {"127.0.0.7" => ["two"], "127.0.0.8" => ["two"]})
      ways.each do |name, way|
        %w[127.0.0.7 127.0.0.8].each do |allowed|
          connected = Heddle.connect_filter(->(address, _) { address.ip_address == allowed }) { way.call("two") }
          puts name if connected != allowed
        end
        asked = []
        Heddle.connect_filter(->(address, _) { asked.push(address.ip_address) && false }) { way.call("two") }
        puts "went around: " + name
      rescue Heddle::ConnectRefused => error
        puts name if asked.sort != %w[127.0.0.7 127.0.0.8] || error.address.ip_address != asked.first
      end
    RUBY
    assert_empty out
  end

  # The error of an address that was tried says more than the refusal of another.
  def test_an_allowed_address_that_does_not_answer
    out = between(<<~RUBY, hosts: {"127.0.0.7" => ["two"], "127.0.0.8" => ["two"]})
      servers.each(&:close)
      ways.each do |name, way|
        Heddle.connect_filter(->(address, _) { address.ip_address == "127.0.0.8" }) { way.call("two") }
        puts "went around: " + name
      rescue Errno::ECONNREFUSED
        nil
      end
    RUBY
    assert_empty out
  end

  # A String that other code changes while the filter waits.
  def test_a_host_that_changes_during_the_check
    with_server(->(connection) { connection.read }) do |port|
      everywhere do |place|
        WAYS.each do |name, way|
          next if /Net::HTTP/.match?(name) # copies the host

          host = +"127.0.0.1"
          filter = lambda do |address, seen|
            host.replace("127.0.0.9.example" * 9)
            address.ip_address == "127.0.0.1" && seen == "127.0.0.1"
          end
          Heddle.connect_filter(filter) { way.call(host, port) }
          assert_operator host.size, :>, 99, "#{name} in #{place}"
        end
        packed = Socket.sockaddr_in(port, "127.0.0.1")
        Socket.open(:INET, :STREAM) do |socket|
          change = ->(*) { packed.replace(Socket.sockaddr_in(port, "127.0.0.9")) }
          Heddle.connect_filter(change) { socket.connect(packed) }
          assert_equal "127.0.0.1", socket.remote_address.ip_address
        end
      end
    end
  end

  # What getaddrinfo makes of a host is what is checked.
  def test_odd_notations
    hosts = %w[127.1 0x7f.1 0x7f000001 2130706433 017700000001 0 0.0.0.0 ::1 :: ::ffff:127.0.0.1 ::ffff:7f00:1
      ::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: fe80::1%lo 0:0:0:0:0:0:0:1] + [nil, "", "<any>", "<broadcast>"]
    with_server(->(connection) { connection.close }) do |port|
      everywhere do |place|
        Heddle.connect_filter(PUBLIC) do
          hosts.product(WAYS.except("Heddle::Stream", "Net::HTTP", "Net::HTTP, stock").to_a) do |host, (name, way)|
            way.call(host, port)
            flunk "#{name} went to #{host.inspect} in #{place}"
          rescue Refused
            nil
          rescue SocketError, SystemCallError => error # not an address here, or not for this kind of socket
            next if name.start_with?("UDP") && host.to_s.include?(":")

            assert_includes [nil, "fe80::1%lo", "", "<any>", "<broadcast>"], host, error.full_message
          end
        end
      end
    end
  end

  private

  # Runs a program in a network of its own, with a server on 127.0.0.1, 127.0.0.7 and 127.0.0.8, and +ways+ to ask such
  # a server for its address.
  def between(program, hosts:)
    network = dead_network(hosts: hosts)
    assert_child(<<~RUBY, launcher: network.launcher)
      servers = [TCPServer.new("127.0.0.1", 0)]
      port = servers.first.addr[1]
      servers += %w[127.0.0.7 127.0.0.8].map { |address| TCPServer.new(address, port) }
      servers.each do |server|
        Thread.new { loop { server.accept.tap { |client| client.write(server.addr[3]) }.close } rescue IOError }
      end
      slowly = lambda do |&block|
        Heddle.fast_fallback = false
        block.call
      ensure
        Heddle.fast_fallback = true
      end
      subclass = Class.new(TCPSocket) { def initialize(host, port) = super }
      plain = {
        "new" => ->(host) { TCPSocket.new(host, port).read },
        "open" => ->(host) { TCPSocket.open(host, port, &:read) },
        "tcp" => ->(host) { Socket.tcp(host, port, &:read) },
        "open in Ruby" => ->(host) { slowly.call { TCPSocket.open(host, port).read } },
        "tcp in Ruby" => ->(host) { slowly.call { Socket.tcp(host, port).read } },
        "subclass" => ->(host) { subclass.new(host, port).read },
        "stream" => ->(host) { Heddle::Stream.connect(host, port).read }
      }
      ways = plain.flat_map do |name, way|
        [["thread " + name, way], ["deadline " + name, ->(host) { Heddle.deadline(9) { way.call(host) } }],
          ["task " + name, ->(host) { Heddle.run { way.call(host) } }]]
      end
      #{program}
    RUBY
  end
end
