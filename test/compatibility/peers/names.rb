# frozen_string_literal: true

require "resolv"
require_relative "scripted"
require_relative "datagrams"

module Compatibility
  module Peers
    # A server of DNS by UDP: the address of heddle1234.example is 10.0.4.210.
    class Names < Datagrams
      def initialize
        super(&method(:answer))
      end

      # @return [Integer] the number in an answer
      def self.number(address) = address.to_s.split(".").last(2).map(&:to_i).then { |high, low| high * 256 + low }

      private

      def answer(query)
        message = Resolv::DNS::Message.decode(query)
        name = message.question.first.first
        number = name.to_s[/\d+/].to_i
        message.qr = message.ra = 1
        message.add_answer(name, 60, Resolv::DNS::Resource::IN::A.new("10.0.#{number / 256}.#{number % 256}"))
        message.encode
      end
    end
  end
end
