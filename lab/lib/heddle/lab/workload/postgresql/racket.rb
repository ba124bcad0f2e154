# frozen_string_literal: true

require "uri"

module Heddle
  module Lab
    class Workload
      class PostgreSQL < Queries
        # Racket's db library, over the UNIX socket, where the server wants no password: version 8.7 logs in by SCRAM
        # with a function that OpenSSL 3 does not have.
        class Racket
          PROGRAM = <<~RACKET
            (require db racket/base)
            (define arguments (current-command-line-arguments))
            (define (argument n) (vector-ref arguments n))
            (define c (postgresql-connect #:socket (argument 0) #:user (argument 1) #:database (argument 2)))
            (define (check one two) (unless (equal? one two) (error "a wrong answer")))
            (define (new n)
              (define sql (string-append "select " (number->string n) " as a, $1::int as b"))
              (check n (vector-ref (query-row c sql n) 1)))
            (define statement (prepare c "select 1 as a, $1::int as b"))
            (define (kept n) (check n (vector-ref (query-row c statement n) 1)))
            (define (rows n) (check 1000 (length (query-rows c (argument 4)))))
            (define one (cdr (assoc (argument 3) (list (cons "new" new) (cons "kept" kept) (cons "rows" rows)))))
            (define count (string->number (argument 5)))
            (for ([n (quotient count 10)]) (one n))
            (printf "ready\\n") (flush-output)
            (void (read-line))
            (define cpu (current-process-milliseconds))
            (define wall (current-inexact-milliseconds))
            (for ([n count]) (one n))
            (printf "[~a, ~a]\\n" (- (current-inexact-milliseconds) wall) (- (current-process-milliseconds) cpu))
            (flush-output)
            (void (read-line))
          RACKET
          private_constant :PROGRAM

          # @param url [String]
          # @param socket [String] its path
          # @param operation [String]
          # @param rows [String] the query of many rows
          def initialize(url, socket, operation, rows)
            uri = URI(url)
            @arguments = [socket, uri.user, uri.path.delete_prefix("/"), operation, rows]
          end

          # @return [Hash{String => Numeric}] seconds of wall and CPU time
          def run(count) = RacketProgram.new(PROGRAM, [*@arguments, count.to_s]).run
        end
        private_constant :Racket
      end
    end
  end
end
