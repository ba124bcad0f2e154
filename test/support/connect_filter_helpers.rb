# frozen_string_literal: true

require "support/loop_helpers"
require "heddle/net_http"

# For tests of filters for connects.
module ConnectFilterHelpers
  include LoopHelpers

  PUBLIC = Heddle::ConnectFilter::PUBLIC
  Refused = Heddle::ConnectRefused

  # Ruby's own connects, with its patches of Heddle switched off.
  def self.slowly
    Heddle.fast_fallback = false
    yield
  ensure
    Heddle.fast_fallback = true
  end

  def self.stock
    Heddle::NetHTTP.disable
    yield
  ensure
    Heddle::NetHTTP.enable
  end

  # As wrappers of sockets have.
  class WithInitialize < TCPSocket
    def initialize(host, port) = super
  end

  # Ways to connect, with the host that the filter sees: the name, or only the address.
  WAYS = {
    "TCPSocket.new" => ->(host, port) { TCPSocket.new(host, port).close },
    "TCPSocket.open" => ->(host, port) { TCPSocket.open(host, port) { nil } },
    "a subclass" => ->(host, port) { WithInitialize.new(host, port).close },
    "Socket.tcp" => ->(host, port) { Socket.tcp(host, port) { nil } },
    "Socket.tcp in Ruby" => ->(host, port) { slowly { Socket.tcp(host, port).close } },
    "TCPSocket in Ruby" => ->(host, port) { slowly { TCPSocket.open(host, port).close } },
    "Net::HTTP" => ->(host, port) { Net::HTTP.new(host, port, nil).start { nil } },
    "Net::HTTP, stock" => ->(host, port) { stock { Net::HTTP.new(host, port, nil).start { nil } } },
    "Heddle::Stream" => ->(host, port) { Heddle::Stream.connect(host, port).close },
    "UDPSocket#connect" => ->(host, port) { UDPSocket.open { |socket| socket.connect(host, port) } }
  }.freeze
  IPV4 = ->(host, port) { Addrinfo.getaddrinfo(host, port, :INET, :STREAM).first }
  WAYS_TO_ADDRESSES = {
    "Addrinfo" => ->(host, port) { IPV4.call(host, port).connect { nil } },
    "Socket#connect" => lambda do |host, port|
      Socket.open(:INET, :STREAM) { |socket| socket.connect(IPV4.call(host, port)) }
    end,
    "Socket#connect_nonblock" => lambda do |host, port|
      Socket.open(:INET, :STREAM) { |socket| socket.connect_nonblock(IPV4.call(host, port), exception: false) }
    end
  }.freeze
  WAYS_TO_PATHS = {
    "UNIXSocket.new" => ->(path) { UNIXSocket.new(path).close },
    "UNIXSocket.open" => ->(path) { UNIXSocket.open(path) { nil } },
    "Socket.unix" => ->(path) { Socket.unix(path) { nil } },
    "Heddle::Stream" => ->(path) { Heddle::Stream.unix(path).close }
  }.freeze

  def teardown
    Heddle.connect_filter(nil)
  end

  private

  # Runs the block in a plain thread, in a thread with a deadline, and in a task.
  def everywhere
    yield "a thread"
    Heddle.deadline(50) { yield "a thread with a deadline" }
    Heddle.run { yield "a task" }
  end

  def causes(error)
    error ? [error, *causes(error.cause)] : []
  end
end
