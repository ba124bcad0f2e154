# frozen_string_literal: true

require "json"
require "socket"
require "websocket/driver"

# Subscribes to a channel of ActionCable, and keeps what arrives.
class CableClient
  # @return [String] the driver asks for it
  attr_reader :url
  # @return [Array<Object>] what the channel has sent
  attr_reader :messages

  # @param channel [String] the name of its class
  def initialize(host, port, channel)
    @url = "ws://#{host}:#{port}/cable"
    @identifier = {channel: channel}.to_json
    @messages = []
    @socket = TCPSocket.new(host, port)
    @driver = WebSocket::Driver.client(self)
    @driver.on(:message) { |event| receive(JSON.parse(event.data)) }
    @driver.start
  end

  # Called by the driver.
  def write(bytes) = @socket.write(bytes)

  # Takes what arrives within +seconds+.
  #
  # @return [Array<Object>] all messages
  def take(seconds)
    @driver.parse(@socket.readpartial(1 << 16)) if @socket.wait_readable(seconds)
    @messages
  end

  def close = @socket.close

  private

  def receive(event)
    case event["type"]
    when "welcome" then @driver.text({command: "subscribe", identifier: @identifier}.to_json)
    when nil then @messages << event.fetch("message")
    end
  end
end
