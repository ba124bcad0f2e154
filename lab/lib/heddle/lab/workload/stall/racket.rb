# frozen_string_literal: true

require "heddle/lab/workload/racket_program"
require "socket"

module Heddle
  module Lab
    class Workload
      class Stall < Workload
        # Racket's db library, and a look at its connection from outside.
        class Racket
          PROGRAM = <<~RACKET
            (require db racket/base)
            (define arguments (current-command-line-arguments))
            (define (argument n) (vector-ref arguments n))
            (define c (mysql-connect #:server (argument 0) #:port (string->number (argument 1)) #:user (argument 2)
                                     #:password (argument 3) #:database (argument 4) #:ssl 'no))
            (define (one n)
              (define row (query-row c (string-append "select " (number->string n) " as a, ? as b") n))
              (unless (equal? (vector-ref row 0) n) (error "a wrong answer")))
            (for ([n 100]) (one (- n)))
            (printf "ready\\n") (flush-output)
            (void (read-line))
            (define cpu (current-process-milliseconds))
            (define wall (current-inexact-milliseconds))
            (for ([n (string->number (argument 5))]) (one n))
            (printf "[~a, ~a]\\n" (- (current-inexact-milliseconds) wall) (- (current-process-milliseconds) cpu))
            (flush-output)
            (void (read-line))
          RACKET
          # The same on every architecture of Linux: see pidfd_open(2), pidfd_getfd(2).
          PIDFD_OPEN = 434
          PIDFD_GETFD = 438
          private_constant :PROGRAM, :PIDFD_OPEN, :PIDFD_GETFD

          # @param uri [URI]
          def initialize(uri)
            @uri = uri
          end

          # @param count [Integer] of queries
          # @return [Array<String>]
          def command(count) = program(count).command

          # @yieldparam socket [Socket, nil] its connection, before and after; nil if the system does not allow access
          # @return [Hash{String => Numeric}] seconds, and by how much the block's figures grew
          def run(count)
            socket = nil
            figures = []
            measures = program(count).run do |pid|
              socket ||= connection(pid)
              figures << yield(socket)
            end
            {**measures, "segments" => figures.first && figures.last - figures.first}.compact
          ensure
            socket&.close
          end

          private

          def program(count)
            RacketProgram.new(PROGRAM, [@uri.host, @uri.port.to_s, @uri.user, @uri.password,
              @uri.path.delete_prefix("/"), count.to_s])
          end

          def connection(pid)
            process = IO.for_fd(call(PIDFD_OPEN, pid, 0))
            descriptors = Dir.children("/proc/#{pid}/fd").select do |name|
              File.readlink("/proc/#{pid}/fd/#{name}").start_with?("socket:")
            end
            descriptors.each do |descriptor|
              socket = Socket.for_fd(call(PIDFD_GETFD, process.fileno, descriptor.to_i, 0))
              return socket if socket.remote_address.ip? && socket.remote_address.ip_port == @uri.port

              socket.close
            end
            nil
          rescue SystemCallError
            nil
          ensure
            process&.close
          end

          # Kernel#syscall warns that it is seldom the best way; here it is the only one.
          def call(...)
            verbose, $VERBOSE = $VERBOSE, nil
            syscall(...)
          ensure
            $VERBOSE = verbose
          end
        end
      end
    end
  end
end
