# frozen_string_literal: true

module Heddle
  module DB
    # COPY on a {Connection}: many rows into a table, or out of one, faster than by any other statement. Only where the
    # database has it ({PostgreSQL}); others raise {Unsupported}.
    module Copy
      # Seconds to give a COPY up after its caller's deadline or cancel.
      GIVE_UP_TIME = 1
      private_constant :GIVE_UP_TIME

      # Runs a COPY … FROM STDIN. The block gives the rows; its end completes the COPY. If the block is left in any
      # other way (an error, a deadline, a cancel, throw, break), the server is told to discard all rows, and the
      # connection stays usable.
      #
      # The form is that of the statement: text, or <tt>with (format csv)</tt> or <tt>binary</tt>, with the
      # statement's own delimiter, null, quote and escape.
      #
      # In the binary form the server has no text to read. It is asked for the types of the columns first, and each
      # value must fit its column's type: see {PostgreSQL::CopyIn#<<}. Of composite types, money, tsvector and types
      # without a known form it takes the server's bytes only.
      #
      # @example
      #   db.copy_in("copy items (id, name) from stdin") { |copy| copy << [1, "one"] << [2, nil] }
      # @param sql [String]
      # @yieldparam copy [PostgreSQL::CopyIn]
      # @return [Integer] how many rows the table got
      # @raise [ServerError] the server refused the statement or a row: none is kept, and the connection stays open
      # @raise [ConnectionLost, ProtocolError] the connection is closed
      # @raise [DeadlineExceeded] the connection is closed if rows were being sent, or the server was about to answer
      # @raise [Unsupported] the database does not have it; nothing was sent
      def copy_in(sql)
        raise ArgumentError, "copy_in needs a block: db.copy_in(sql) { |copy| copy << row }" unless block_given?

        begun = complete = nil
        begin
          start_copy(:copy_in, sql) { |copy| begun = copy }
          during_copy { yield begun }
          exchange do
            complete = true
            checked(begun.finish(nil), sql)
          end
        ensure
          give_copy_up(begun, sql) if begun && !complete
        end
      end

      # Runs a COPY … TO STDOUT, and calls the block with each row. A few rows at a time are in memory. A block that
      # is left early closes the connection: give the statement a limit instead.
      #
      # In the text and csv forms a row is an Array of String and nil; a header of csv is a row, too. In the binary form
      # it has the values that a query returns. There, composite types, money and types without a known form raise
      # ArgumentError before anything is copied.
      #
      # @example
      #   db.copy_out("copy (select id, name from items) to stdout") { |id, name| … }
      # @param sql [String]
      # @param raw [Boolean] whether the block gets the server's bytes instead: a String a row
      # @yieldparam row [Array, String]
      # @return [Integer] the number of rows
      # @raise [ServerError] the connection stays open
      # @raise [ConnectionLost, ProtocolError, DeadlineExceeded] the connection is closed
      # @raise [Unsupported] the database does not have it; nothing was sent
      def copy_out(sql, raw: false)
        raise ArgumentError, "copy_out needs a block: db.copy_out(sql) { |row| … }" unless block_given?

        begun = complete = nil
        begin
          start_copy(:copy_out, sql, raw: raw) { |copy| begun = copy }
          during_copy do
            while (rows = begun.rows)
              rows.each { |row| yield row }
            end
          end
          complete = true
        ensure
          drop_copy if begun && !complete
        end
        exchange(sql) { checked(begun.result, sql) }
      end

      private

      # Yields the COPY within the exchange that began it: the caller knows of it before an exception can arrive. The
      # connection stays reserved until the end of #during_copy.
      def start_copy(kind, sql, **options)
        need_driver(kind)
        exchange do
          check_transaction(:plain, sql)
          yield checked(@driver.public_send(kind, sql, **options), sql)
          reserve
        end
      end

      def during_copy
        yield
      rescue IOError, SystemCallError, OpenSSL::SSL::SSLError => error
        raise if error.is_a?(Error) || !closed?

        @copy_lost = true
        raise ConnectionLost, loss(error)
      ensure
        unreserve
      end

      def give_copy_up(copy, sql)
        unreserve # unless it has ended
        return drop_copy if closed?

        Heddle.shield(GIVE_UP_TIME) do
          exchange(sql) { record_answer(copy.finish("the client gave the COPY up"), sql) }
        end
      rescue Error, IOError, SystemCallError, OpenSSL::SSL::SSLError, DeadlineExceeded
        drop_copy
      end

      def drop_copy
        unreserve
        @driver.abandon(@copy_lost)
      end
    end
  end
end
