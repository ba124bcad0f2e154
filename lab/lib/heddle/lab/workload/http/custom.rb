# frozen_string_literal: true

require "io/wait"
require "timeout"
require_relative "stock"

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # The seed's variants of the one method of Net::BufferedIO that reads, on today's Net::HTTP. In 2008 Ruby read 1
        # KiB at a time within `timeout`; today it reads 16 KiB without blocking, so Ruby took none of these variants.
        class Custom < Stock
          # The base of the variants. BYTES of each subclass is the most that it reads at once.
          class BufferedIO < Net::BufferedIO
            private

            # net-protocol from 0.2 on remembers whether its buffer holds anything.
            def rbuf_fill
              bytes = receive
              @rbuf << bytes
              @rbuf_empty = false if defined?(@rbuf_empty)
            end

            def wait = IO.select([@io], nil, nil, @read_timeout) || raise(Net::ReadTimeout.new(@io))

            def size = self.class::BYTES
          end

          # Ruby's method of 2008, with another size.
          class WithTimeout < BufferedIO
            BYTES = 16 * 1024

            private

            def receive = Timeout.timeout(@read_timeout, Net::ReadTimeout) { @io.sysread(size) }
          end

          # "This obviously isn't a practical change."
          class WithoutTimeout < BufferedIO
            BYTES = 16 * 1024

            private

            def receive = @io.sysread(size)
          end

          # Akira Tanaka's variant, from ruby-talk.
          class Select < BufferedIO
            BYTES = 16 * 1024

            private

            def receive
              @io.read_nonblock(size)
            rescue IO::WaitReadable
              wait
              retry
            end
          end

          # The same, but reads with sysread after select.
          class SelectWithSysread < BufferedIO
            BYTES = 16 * 1024

            private

            def receive
              @io.read_nonblock(size)
            rescue IO::WaitReadable
              wait
              @io.sysread(size)
            end
          end

          WithoutTimeout64 = Class.new(WithoutTimeout) { const_set(:BYTES, 64 * 1024) }
          Select64 = Class.new(Select) { const_set(:BYTES, 64 * 1024) }

          {
            "custom-16kbuffer" => WithTimeout, "custom-16kbuffer-notimeout" => WithoutTimeout,
            "custom-16kbuffer-select" => Select, "custom-16kbuffer-selectwithsysread" => SelectWithSysread,
            "custom-64kbuffer-notimeout" => WithoutTimeout64, "custom-64kbuffer-select" => Select64
          }.each do |name, buffered_io|
            implements(name => Class.new(self) do
              # Net::HTTP takes the class of its connections from this constant.
              define_singleton_method(:versions) do
                Net::HTTP.const_set(:BufferedIO, buffered_io)
                super()
              end
            end)
          end
        end
      end
    end
  end
end
