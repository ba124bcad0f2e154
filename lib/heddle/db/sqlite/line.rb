# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # Those of this process who wait for the lock of one database, the longest waiter first. Only the first one asks
      # SQLite again and again; the others sleep. So the lock goes to them in turn, and not to whoever asks at the right
      # moment. Other processes are not in the line: between processes SQLite has no order.
      #
      # Nothing here waits, and the GVL guards it.
      #
      # @api private
      class Line
        @lines = {}
        @process = Process.pid

        class << self
          # @param path [String] of the database, "" for one in memory
          # @return [Line] the same for all connections to one file
          def of(path)
            return new if path.empty?

            @lines, @process = {}, Process.pid if @process != Process.pid # those who waited are in the parent
            stat = File.stat(path)
            @lines[[stat.dev, stat.ino]] ||= new
          end
        end

        def initialize
          @waiting = []
          @writer = nil
        end

        # @return [String, nil] the connection of this process that is in a writing transaction
        attr_accessor :writer

        # @return [Boolean]
        def empty? = @waiting.empty?

        # @return [Boolean]
        def first?(turn) = @waiting.first.equal?(turn)

        # @return [Boolean]
        def include?(turn) = @waiting.any? { |other| other.equal?(turn) }

        def enter(turn)
          @waiting << turn unless include?(turn)
        end

        def leave(turn)
          @waiting.delete_if { |other| other.equal?(turn) }
        end

        # The lock may be free.
        def wake = @waiting.first&.wake
      end
      private_constant :Line
    end
  end
end
